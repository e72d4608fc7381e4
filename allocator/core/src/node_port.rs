//! Node ports, among them `healthCheckNodePort`s.
//!
//! Owns which ports of the range are taken and which is handed out next (KEP-3668). A port is taken whatever the
//! protocol; that one Service may use it for several protocols is the caller's business.

use api_model::Port;

use crate::{band::Band, range::AllocateError, slots::Slots};

/// Allocates node ports from one range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePortAllocator {
    first: Port,
    last: Port,
    slots: Slots,
    band: Band,
}

impl NodePortAllocator {
    /// Ports `first` to `last`, both included, free; `None` if they are in the wrong order.
    pub fn new(first: Port, last: Port) -> Option<Self> {
        let size = u128::from(last.get().checked_sub(first.get())?) + 1;
        Some(Self {
            first,
            last,
            slots: Slots::new(size),
            band: Band::node_port(size),
        })
    }

    /// First and last port, both included.
    pub fn range(&self) -> (Port, Port) {
        (self.first, self.last)
    }

    /// Takes the port that somebody chose. Errors: outside, taken.
    pub fn allocate(&mut self, port: Port) -> Result<(), AllocateError<Port>> {
        let slot = self.slot(port).ok_or(AllocateError::NotInRange {
            wanted: port,
            first: self.first,
            last: self.last,
        })?;
        if self.slots.take(slot) {
            Ok(())
        } else {
            Err(AllocateError::InUse(port))
        }
    }

    /// Takes the next free port, upper band first, from a start that `seed` chooses. Errors: exhausted.
    pub fn allocate_next(&mut self, seed: u64) -> Result<Port, AllocateError<Port>> {
        let slot = self.band.next(&self.slots, seed);
        let port = slot.and_then(|slot| {
            let offset = u16::try_from(slot).ok()?;
            Port::new(self.first.get().checked_add(offset)?)
        });
        let port = port.ok_or(AllocateError::Exhausted {
            first: self.first,
            last: self.last,
        })?;
        self.allocate(port)?;
        Ok(port)
    }

    /// Frees the port; false if it was free or lies outside.
    pub fn release(&mut self, port: Port) -> bool {
        self.slot(port).is_some_and(|slot| self.slots.free(slot))
    }

    /// Whether the port is taken.
    pub fn has(&self, port: Port) -> bool {
        self.slot(port).is_some_and(|slot| self.slots.has(slot))
    }

    /// Number of free ports.
    pub fn free(&self) -> u128 {
        self.slots.len() - self.slots.used()
    }

    /// Number of taken ports.
    pub fn used(&self) -> u128 {
        self.slots.used()
    }

    fn slot(&self, port: Port) -> Option<u128> {
        let inside = (self.first..=self.last).contains(&port);
        inside.then(|| u128::from(port.get() - self.first.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(number: u16) -> Port {
        Port::new(number).unwrap()
    }

    #[test]
    fn the_range_may_end_at_the_last_port() {
        let mut ports = NodePortAllocator::new(port(65_530), port(65_535)).unwrap();
        let mut all: Vec<u16> = (0..6)
            .map(|_| ports.allocate_next(3).unwrap().get())
            .collect();
        all.sort_unstable();
        assert_eq!(all, (65_530..=65_535).collect::<Vec<u16>>());
        assert!(matches!(
            ports.allocate_next(3),
            Err(AllocateError::Exhausted { .. })
        ));
        assert_eq!(NodePortAllocator::new(port(2), port(1)), None);
    }

    #[test]
    fn errors_name_the_range() {
        let mut ports = NodePortAllocator::new(port(30_000), port(32_767)).unwrap();
        let error = ports.allocate(port(80)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "80 is not in the valid range, 30000-32767"
        );
        assert_eq!(ports.allocate(port(30_080)), Ok(()));
        assert_eq!(
            ports.allocate(port(30_080)).unwrap_err().to_string(),
            "30080 is already allocated"
        );
        assert_eq!(
            (ports.used(), ports.free(), ports.has(port(30_080))),
            (1, 2767, true)
        );
        assert!(ports.release(port(30_080)));
        assert!(!ports.release(port(30_080)));
    }
}
