# The only entry, for people and for CI. `./justw` lists what there is.

set shell := ["bash", "-euo", "pipefail", "-c"]

packages := "clang-19 libelf-dev zlib1g-dev pkg-config gcc make"

[private]
default:
    @just --list --unsorted

# Installs the Debian packages that a build needs and that are missing
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

# Format, lints
check: setup
    cargo fmt --all --check
    cargo clippy --locked --workspace --all-targets --quiet -- --deny warnings

# Tests that need neither root nor a cluster
unit: setup
    cargo test --locked --workspace --quiet

# What CI runs: every stage, with its time
test:
    #!/usr/bin/env bash
    set -euo pipefail
    begin=$SECONDS
    for stage in setup check unit; do
      echo "== $stage"
      from=$SECONDS
      "{{ just_executable() }}" "$stage"
      echo "== $stage took $((SECONDS - from)) s"
    done
    echo "== all took $((SECONDS - begin)) s"

# Writes all generated code anew
gen: setup
    UPDATE=1 cargo test --locked --quiet -p keelson-proto --test bootstrap
