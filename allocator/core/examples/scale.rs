//! How long the core takes: `cargo run --release -p allocator-core --example scale`. Writes are answered at once.

#![expect(clippy::print_stdout, reason = "it prints a table")]

#[path = "../tests/world/mod.rs"]
mod world;

use std::time::Instant;

use allocator_core::{Pool, ServiceClaim};
use world::{World, claim};

fn served(pool: &str, services: i64) -> World {
    let mut world = World::new();
    world.pool(Pool::new("p", &[pool]));
    world.run();
    for created in 0..services {
        let claim = claim(&format!("s{created}"));
        world.service(ServiceClaim { created, ..claim });
    }
    world.run();
    world
}

#[expect(
    clippy::disallowed_methods,
    reason = "it measures the time that the core takes"
)]
fn main() {
    println!("{:<44} {:>12}", "what", "ms");
    let row = |what: &str, start: Instant| {
        println!("{what:<44} {:>12.2}", start.elapsed().as_secs_f64() * 1e3);
    };
    for services in [1_000, 4_000, 16_000] {
        let start = Instant::now();
        let mut world = served("10.0.0.0/16", services);
        row(&format!("{services} Services from a /16, in all"), start);
        let start = Instant::now();
        for more in 0..100 {
            world.service(claim(&format!("more{more}")));
            world.run();
        }
        row("  100 more, one by one", start);
        let start = Instant::now();
        world.restart();
        row("  restart: replay of all", start);
    }
    let mut world = served("10.0.0.0/20", 16_000);
    let start = Instant::now();
    world.service(claim("one-more"));
    world.run();
    row("one more on a full /20 with 11904 waiting", start);
    let start = Instant::now();
    world.delete("s0");
    world.wait(std::time::Duration::from_secs(5));
    row("one deleted there, its address handed over", start);
}
