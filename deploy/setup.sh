#!/usr/bin/env bash
# setup.sh demo|test: looks for the programs that the demo or the tests need. As root it installs what is missing;
# otherwise it prints one command and exits 2. What the demo can do without is only named.
set -euo pipefail

purpose=${1:?usage: setup.sh demo|test}
minimum_rust=1.90

# program, Debian package, and whether the demo can do without it
needs() {
    cat <<'TABLE'
cc gcc required
ip iproute2 required
nft nftables required
unshare util-linux required
conntrack conntrack tests
gobgpd gobgpd optional
gobgp gobgpd optional
kubectl kubernetes-client optional
TABLE
}

have() { PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1; }

missing=() without=()
while read -r program package kind; do
    have "$program" && continue
    if [ "$kind" = required ] || [ "$purpose" = test ] || [ "$(id -u)" = 0 ]; then
        missing+=("$package")
    elif [ "$kind" = optional ]; then
        without+=("$program")
    fi
done < <(needs)

if ! have cargo; then
    echo "setup: cargo is missing; install Rust $minimum_rust or newer (https://rustup.rs), then run this again" >&2
    exit 2
fi
rust=$(rustc --version | cut -d' ' -f2)
if [ "$(printf '%s\n' "$minimum_rust" "$rust" | sort -V | head -n 1)" != "$minimum_rust" ]; then
    echo "setup: Rust $rust is too old, $minimum_rust or newer is needed: rustup update stable" >&2
    exit 2
fi

if [ "${#missing[@]}" -gt 0 ]; then
    mapfile -t packages < <(printf '%s\n' "${missing[@]}" | sort -u)
    if [ "$(id -u)" = 0 ] && have apt-get; then
        echo "setup: installing ${packages[*]}" >&2
        export DEBIAN_FRONTEND=noninteractive
        { apt-get -q update && apt-get -q install -y --no-install-recommends "${packages[@]}"; } </dev/null >&2 || {
            echo "setup: could not install ${packages[*]}" >&2
            exit 2
        }
    else
        echo "setup: programs are missing; this installs them: sudo apt-get install ${packages[*]}" >&2
        exit 2
    fi
fi
[ "${#without[@]}" -eq 0 ] || echo "setup: going on without: ${without[*]}" >&2
