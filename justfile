# The only entry, for people and for CI. `./justw` lists what there is.

set shell := ["bash", "-euo", "pipefail", "-c"]
set positional-arguments

# What a build needs, and what the tests on the kernel call.
packages := "clang-19 libelf-dev zlib1g-dev pkg-config gcc make iproute2 nftables"
# All programs at once: built one by one, they would build their common libraries anew for each
# set of features. What is built says so; what is built already says nothing.
build := "cargo build --locked --profile ci --workspace --bins 2> >(grep -v '^ *Finished' >&2)"
ci := "${CARGO_TARGET_DIR:-target}/x86_64-unknown-linux-gnu/ci"
dev := build + " && " + ci + "/keelson-dev"

[private]
default:
    @just --list --unsorted

# Installs the Debian packages that builds and kernel tests need and that are missing
setup:
    #!/usr/bin/env bash
    set -euo pipefail
    missing=$(for package in {{ packages }}; do
      dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || echo "$package"
    done)
    [ -n "$missing" ] || exit 0
    [ "$(id -u)" = 0 ] || { echo "setup: not root; as root: apt-get install $missing" >&2; exit 1; }
    echo "setup: installing" $missing
    apt-get -qq update
    DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends $missing >/dev/null

# --- checks and tests

# Format and lints
check: setup
    cargo fmt --all --check
    cargo clippy --locked --workspace --all-targets --quiet -- --deny warnings

# Licences, sources and advisories of what we depend on; the advisories come from the internet
deny:
    #!/usr/bin/env bash
    set -euo pipefail
    root="${KEELSON_CACHE:-$HOME/.cache/keelson}/tools/cargo-deny-0.20.2"
    if ! [ -x "$root/bin/cargo-deny" ]; then
      echo "deny: building cargo-deny 0.20.2"
      cargo install --quiet --locked --version 0.20.2 --root "$root" cargo-deny
    fi
    "$root/bin/cargo-deny" check bans licenses sources advisories

# Tests that need neither root nor a cluster
unit: setup
    cargo test --locked --profile ci --workspace --exclude keelson-integration-tests --quiet
    cargo test --locked --profile ci --package keelson-integration-tests --lib --quiet

# Tests on this machine's kernel and on others in guests; as root
kernel: setup
    cargo test --locked --profile ci --package keelson-integration-tests --test 'kernel_*' --quiet -- --test-threads=1

# Tests on the real local cluster; as root
acceptance: setup
    cargo test --locked --profile ci --package keelson-integration-tests --test 'acceptance_*' -- --test-threads=1 --nocapture

# Tests of the local cluster itself; as root; it is down when they end
harness: setup
    cargo test --locked --profile ci --package keelson-integration-tests --test 'cluster_*' -- --test-threads=1

# What CI runs: every stage, with its time
test:
    #!/usr/bin/env bash
    set -euo pipefail
    begin=$SECONDS
    for stage in setup check unit kernel tools acceptance harness; do
      echo "== $stage"
      from=$SECONDS
      "{{ just_executable() }}" "$stage"
      echo "== $stage took $((SECONDS - from)) s"
    done
    echo "== all took $((SECONDS - begin)) s"

# The long form of the acceptance lines; figures go to docs/verification.md
verify *LINE: setup
    @{{ dev }} verify "$@"

# --- the local cluster

# Installs and builds what the local cluster is made of
tools: setup
    @{{ dev }} setup

# up, down, status, kubectl ...
cluster *ARGS: setup
    @{{ dev }} cluster "$@"

# Builds the images and imports them into the cluster
images: setup
    @{{ dev }} images

# A pod that Kubernetes calls Ready and the kernels do not
demo: setup
    @{{ dev }} demo

# Removes the demo, Keelson and the cluster
demo-down:
    @{{ dev }} demo-down

# The command line against the local cluster
keelson *ARGS: setup
    @{{ build }}
    @KUBECONFIG="${KEELSON_CACHE:-$HOME/.cache/keelson}/cluster/admin.kubeconfig" {{ ci }}/keelson "$@"

# --- generated files

# Writes all generated files anew
gen: setup
    UPDATE=1 cargo test --locked --quiet --package keelson-proto --test bootstrap
    UPDATE=1 cargo test --locked --quiet --package keelson-api --test crds
    UPDATE=1 cargo test --locked --quiet --package keelson-cli --test help
