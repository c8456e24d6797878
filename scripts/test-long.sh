#!/usr/bin/env bash
# Tests that take longer than `make test` or need nightly Rust: loom, address sanitizer, thread
# sanitizer, fuzzer, long random tests. Runs every stage, or the named ones, and fails at the end
# if one of them failed. Each has its own build: all together need some 10 GB below target/.
. "$(dirname "$0")/setup.sh"
. scripts/hosts.sh
setup redis

host=$(rustc -vV | sed -n 's/^host: //p')
failed=()
heading() { stage=$1; printf '\n==== %s ====\n' "$stage"; }
skip() { echo "SKIPPED: $*"; }
run() { "$@" || failed+=("$stage: $*"); }

# cargo with nightly Rust. With --target the flags do not apply to build scripts, which
# could not run with a sanitizer; each sanitizer has its own target directory.
sanitize() { # FLAGS DIRECTORY cargo-arguments...
    RUSTFLAGS=$1 CARGO_TARGET_DIR=$root/target/$2 cargo +nightly "${@:3}"
}

have_nightly() {
    if rustup toolchain list 2>/dev/null | grep -Eq '^nightly(-[a-z]|$)' && rustc +nightly -V; then return; fi
    skip "no nightly Rust (rustup toolchain install nightly)"
    return 1
}

asan_runtime() {
    local paths
    paths=$(ls /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.asan-"$(uname -m)".so 2>/dev/null | sort -V) || true
    echo "${paths##*$'\n'}"
}

loom_stage() {
    heading "loom: every interleaving of the small concurrent parts"
    run env RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR="$root/target/loom" cargo test --release --locked --test engine
}

asan_stage() {
    heading "address sanitizer: store, shards and ports without a server"
    have_nightly || return 0
    # That test leaks words on purpose.
    mkdir -p "$root/target/asan"
    printf 'leak:%s\n' engine::records:: >"$root/target/asan/suppressions"
    LSAN_OPTIONS="suppressions='$root/target/asan/suppressions'" \
        run sanitize "-Zsanitizer=address --cfg midi_asan" asan test --release --locked --target "$host" \
        --no-fail-fast --lib --test model --test engine
    heading "address sanitizer: the module inside the servers"
    # A Rust library leaves the sanitizer's runtime to the program that loads it. The servers
    # have none, so clang's is preloaded. Its malloc then serves the host as well: blocks from
    # RedisModule_Alloc are checked, too.
    echo "Redis only: Valkey loads modules with RTLD_DEEPBIND, which the runtime refuses."
    [ -n "$(asan_runtime)" ] || apt_install libclang-rt-dev ||
        { skip "no libclang_rt.asan (Debian package libclang-rt-dev)"; return 0; }
    local runtime reports=$root/target/asan/report
    runtime=$(asan_runtime)
    sanitize "-Zsanitizer=address --cfg midi_asan" asan build --release --locked --target "$host" ||
        { failed+=("$stage: build"); return 0; }
    # A test may not notice that a server died, so the reports go to files. Leaks: the server frees nothing at exit.
    # A damaged payload makes Redis ask for more memory than there is, and it can handle the failure.
    rm -f "$reports".*
    # Left out: tests that measure the server's memory, which is the sanitizer's here, that start other hosts, or
    # that have the host test its memory.
    local skipped=(log_size::a_transaction_keeps_only_what_was_there_before faults::after_a_crash_nobody_is_served
        output::replies_beyond_the_output_limit_are_not_made floods::a_reply_beyond_the_limit_is_not_made
        replication::a_file_of_one_host_loads_on_others)
    run env MIDI_MODULE="$root/target/asan/$host/release/libmidi.so" MIDI_SERVER_PRELOAD="$runtime" \
        ASAN_OPTIONS="detect_leaks=0:allocator_may_return_null=1:log_path='$reports'" \
        cargo test --release --locked --no-fail-fast --test '*' -- ${skipped[@]/#/--skip }
    # Failed allocations are written there, too.
    if grep -qs 'ERROR: ' "$reports".*; then
        cat "$reports".*
        failed+=("$stage: reports above, in $reports.*")
    fi
}

tsan_stage() {
    heading "thread sanitizer: store, shards and ports without a server"
    have_nightly || return 0
    local std=() suppressions=$root/target/tsan/suppressions
    mkdir -p "${suppressions%/*}"
    # It does not see rustix's system calls: what one thread unmaps, chunks and rings' buffers, another maps.
    printf 'race:%s\n' 'midi::store::arena::spare::Ready>::map' driver/uring/buffers.rs >"$suppressions"
    if [ -e "$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library/Cargo.lock" ]; then
        std=(-Zbuild-std)
    else
        echo "Without Rust's sources (rustup component add rust-src --toolchain nightly) the standard"
        echo "library is not watched: what std's Mutex, Barrier, or scope without join order is"
        echo "reported as a race although it is none. What is known to be so is left out."
        # The test harness, thread exits, and what std synchronises inside generic code.
        printf 'race:%s\n' test::event::CompletedTest 'Option<test::run_test::' std::thread::lifecycle::Packet \
            nptl_deallocate_tsd 'alloc::sync::Arc<*>::drop_slow' std::sync::mpmc:: std::sync::once_lock:: \
            std::thread::current::drop_current \
            >>"$suppressions"
    fi
    # The prebuilt parts of the standard library are not built for the sanitizer: allow the mixture.
    local flags="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer"
    local test=(test --release --locked --target "$host" ${std[@]+"${std[@]}"})
    local -x TSAN_OPTIONS="suppressions='$suppressions' ${TSAN_OPTIONS:-}"
    run sanitize "$flags" tsan "${test[@]}" --lib -- store shard shared_reads sync net::
    run sanitize "$flags" tsan "${test[@]}" --test engine -- _threads::
    MIDI_IO=io_uring run sanitize "$flags" tsan "${test[@]}" --test engine -- port_threads::
}

aarch64_stage() {
    heading "aarch64, emulated elsewhere: unit tests, the engine's, the loom models, and tests with a server"
    local target=aarch64-unknown-linux-gnu server=redis-7.0
    [ "$host" = "$target" ] || { emulate_aarch64 && server=aarch64-redis-7.0; } || return 0
    # Without --workspace: see rustix in benches/harness/Cargo.toml. qemu-user has no epoll_pwait2.
    local built=(--release --locked --target "$target" --target-dir "$root/target/aarch64")
    run cargo test "${built[@]}" --lib --test engine
    run env RUSTFLAGS="--cfg loom" cargo test "${built[@]}-loom" --test engine
    # Those that a slow server without preloaded libraries passes. Its sums of fractions differ (docs/hosts.md).
    find_host "$server" || return 0
    run cargo build "${built[@]}"
    MIDI_REDIS_SERVER=$host_server MIDI_MODULE=$root/target/aarch64/$target/release/libmidi.so MIDI_HOST=redis-7.0 \
        run cargo test --locked --no-fail-fast --test host --test port -- \
        --skip hashes::replies_are_those_of_the_host --skip snapshots::save_points \
        hashes:: field_expiry:: snapshots:: session:: serving:: transactions:: pubsub:: scripts:: watch:: memcached::
}

# What builds for aarch64 and runs it here. For the rest of the script.
emulate_aarch64() {
    local cross=aarch64-linux-gnu-gcc
    rustup target add aarch64-unknown-linux-gnu || { skip "no standard library for aarch64" && return 1; }
    { have qemu-aarch64 && have "$cross"; } || apt_install qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross ||
        { skip "no qemu-user and $cross" && return 1; }
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$cross CC_aarch64_unknown_linux_gnu=$cross
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu"
}

# The sources of a Redis, in target/redis-VERSION. They are fetched, from Redis or from Debian, not kept here.
redis_sources() { # VERSION
    local sources=$root/target/redis-$1 url
    [ ! -e "$sources/tests/test_helper.tcl" ] || return 0
    mkdir -p "$sources"
    for url in "https://download.redis.io/releases/redis-$1.tar.gz" \
        "$(debian_mirror)/pool/main/r/redis/redis_$1.orig.tar.gz"; do
        if curl -fsSL "$url" 2>/dev/null | tar xz -C "$sources" --strip-components 1 2>/dev/null; then return 0; fi
    done
    return 1
}

# What make dist makes for Alpine, on a Redis that is built for musl, too. Left out: tests that load glibc's libraries
# into the server, and those of numbers that musl reads in its own way.
musl_stage() {
    heading "musl: the module for Alpine on a server for musl"
    local target=x86_64-unknown-linux-musl sources=$root/target/redis-7.0.15 include=/usr/include
    [ "$host" = x86_64-unknown-linux-gnu ] || { skip "for x86_64 only" && return 0; }
    rustup target add "$target" || { skip "no standard library for $target" && return 0; }
    have musl-gcc || apt_install musl-tools || { skip "no musl-gcc" && return 0; }
    redis_sources 7.0.15 || { skip "could not fetch Redis's sources" && return 0; }
    run make -s -C "$sources/src" redis-server MALLOC=libc \
        CC="musl-gcc -idirafter $include -idirafter $include/x86_64-linux-gnu"
    run env TARGETS="$target" DIST="$root/target/dist-musl" bash scripts/dist.sh
    MIDI_REDIS_SERVER=$sources/src/redis-server MIDI_HOST=redis-7.0 \
        MIDI_MODULE=$(echo "$root"/target/dist-musl/midi-*-"$target"/libmidi.so) \
        run cargo test --locked --no-fail-fast --test host --test port -- \
        acl:: bitmaps:: commands:: config:: field_expiry:: hashes:: notifications:: settings:: snapshots:: \
        clients:: memcached pubsub scripts:: serving:: session:: tls:: transactions:: watchers::
}

# MIDI_FUZZ_SECONDS is the time per target. Findings go to fuzz/artifacts.
fuzz_stage() {
    heading "fuzzer: any bytes for the parsers"
    have_nightly || return 0
    local tools=$root/target/tools target
    local PATH=$tools/bin:$PATH
    # The fuzzer itself is C++.
    have c++ || apt_install g++ || { skip "no C++ compiler (Debian package g++)"; return 0; }
    have cargo-fuzz || cargo install --locked --root "$tools" cargo-fuzz ||
        { skip "no cargo-fuzz (cargo install cargo-fuzz)"; return 0; }
    for target in $(basename -s .rs fuzz/fuzz_targets/*.rs); do
        mkdir -p "target/fuzz-corpus/$target"
        # A port that lives on has memory that is known only from mapped chunks, where nobody looks for it.
        leaks=1
        [ "$target" != streams ] || leaks=0
        run cargo +nightly fuzz run --target-dir "$root/target/fuzz" "$target" "target/fuzz-corpus/$target" \
            "fuzz/corpus/$target" -- -detect_leaks=$leaks -max_total_time="${MIDI_FUZZ_SECONDS:-300}"
    done
}

random_stage() {
    heading "random operations against the model, random requests and replies"
    run env PROPTEST_CASES=20000 cargo test --release --locked --lib --test model --test engine -- --skip _threads::
}

differential_stage() {
    heading "random commands against the stock commands"
    run cargo build --release --locked
    run env MIDI_DIFFERENTIAL_COMMANDS=1000000 cargo test --release --locked --workspace --test host differential::
}

large_stage() {
    heading "a hash of ten million fields, a message to ten thousand subscribers"
    run cargo build --release --locked
    run env MIDI_HASH_FIELDS=10000000 MIDI_SUBSCRIBERS=10000 cargo test --release --locked --workspace --test host --test port -- \
        hashes_huge:: pubsub_many:: --nocapture --test-threads 1
}

linearizability_stage() {
    heading "histories of many clients: is there an order that explains them"
    run cargo build --release --locked
    run env MIDI_LINEARIZABILITY_ROUNDS=1000 cargo test --release --locked --workspace --test host linearizability
}

sockets_stage() {
    heading "faults of the sockets"
    run cargo build --release --locked
    run env MIDI_SOCKET_ROUNDS=1000 cargo test --release --locked --workspace --test port socket_faults::
    # Tests that expect nothing of the sockets, with every server's sockets failing. What is left out counts bytes
    # that come in one piece, or has midi's last word go through at the first try.
    local counts=$root/target/socket-faults stream
    head -c 32 /dev/zero >"$counts"
    for stream in tcp unix tls; do
        run env MIDI_STREAM=$stream SOCKETS_SEED=1 SOCKETS_COUNTS="$counts" \
            MIDI_SERVER_PRELOAD="$root/target/release/deps/libmidi_test_sockets.so" \
            cargo test --release --locked --workspace --no-fail-fast --test port -- \
            clients:: gates:: held_replies:: large:: mget:: serving:: session:: strangers:: tls:: \
            transactions:: watch:: \
            --skip nothing_is_copied --skip both_protocols_are_spoken
    done
}

# All tests of the port, with the other driver of its sockets.
io_uring_stage() {
    heading "io_uring"
    local stream
    run cargo build --release --locked
    # Those left out are about calls that this driver does not make.
    run env MIDI_IO=io_uring cargo test --release --locked --workspace --no-fail-fast --test port -- --skip socket_faults::
    for stream in tls unix; do
        run env MIDI_IO=io_uring MIDI_STREAM=$stream cargo test --release --locked --workspace --no-fail-fast --test port -- \
            gates:: held_replies:: large:: mget:: serving:: session:: strangers:: transactions:: watch::
    done
}

snapshots_stage() {
    heading "snapshots, forks and crashes under load"
    run cargo build --release --locked
    run env MIDI_SNAPSHOT_ROUNDS=200 cargo test --release --locked --workspace --test host snapshots::
    # Five tests, 10,000 forks.
    run env MIDI_FORKS=2000 cargo test --release --locked --workspace --test host forks::
    # With AOF on: random commands, kills under load, a cut at each byte, and values of 512 MB (2 GB in a server).
    run env MIDI_AOF_COMMANDS=300000 MIDI_CRASHES=100 MIDI_AOF_CUTS=100000 MIDI_LARGE_MB=512 \
        cargo test --release --locked --workspace --test host aof
    run env MIDI_CRASHES=100 cargo test --release --locked --workspace --test port memcached_crash::
}

failovers_stage() {
    heading "failovers and pauses under load"
    run cargo build --release --locked
    # In each of three modes.
    run env MIDI_FAILOVERS=34 cargo test --release --locked --workspace --test host -- \
        replica_failover:: replica_confirmed::
    run env MIDI_FAILOVERS=34 cargo test --release --locked --workspace --test port memcached_failover::
}

# MIDI_REDIS_TESTS and MIDI_REDIS_8_TESTS name other copies' `tests`.
redis_units_stage() {
    heading "Redis's own tests, through a proxy that renames commands"
    have tclsh || apt_install tcl || { skip "no tclsh (Debian package tcl)"; return 0; }
    local old=${MIDI_REDIS_TESTS:-} new=${MIDI_REDIS_8_TESTS:-}
    [ -n "$old" ] || { redis_sources 7.0.15 && old=$root/target/redis-7.0.15/tests; } ||
        skip "could not fetch the sources of Redis 7.0"
    [ -n "$new" ] || { redis_sources 8.6.3 && new=$root/target/redis-8.6.3/tests; } ||
        skip "could not fetch the sources of Redis 8.6"
    run cargo build --release --locked
    run env ${old:+MIDI_REDIS_TESTS="$old"} ${new:+MIDI_REDIS_8_TESTS="$new"} \
        cargo test --release --locked --workspace --test tools redis_suite::
}

all=(loom aarch64 musl asan tsan fuzz random differential linearizability large sockets io_uring snapshots failovers redis_units)
[ $# = 0 ] || all=("$@")
for name in "${all[@]}"; do
    [ "$(type -t "${name}_stage")" = function ] || die "No stage is called $name."
done
for name in "${all[@]}"; do "${name}_stage"; done

heading "result"
[ ${#failed[@]} = 0 ] || die "FAILED:" "${failed[@]}"
echo "All stages that ran have passed."
