#!/usr/bin/env bash
# Builds what is released: for each target an archive with the stripped module, midi-check-aof, pages, licences and
# SBOM, one with the debug file, and SHA256SUMS. TARGETS= chooses targets, DIST= the folder (target/dist; what is in it
# goes), CHECK=1 builds a second time in another folder and compares. The C library is Zig's, so that the module runs on
# systems that are older than this one.
. "$(dirname "$0")/setup.sh"
setup

all_targets=(x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu x86_64-unknown-linux-musl aarch64-unknown-linux-musl)
# Debian 10, Ubuntu 18.10, RHEL 8 and whatever is newer.
glibc=2.28
# Pinned: they decide what is in the module.
zigbuild_version=0.24.1
zig_version=0.17.1
version=$(sed -n 's/^version *= *"\(.*\)"/\1/p' Cargo.toml | head -1)
dist=${DIST:-$root/target/dist}
built=()
left_out=()

# Times in archives and in the SBOM are those of the commit.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH

setup_zig() {
    local venv=$root/target/tools/zig
    if ! "$venv/bin/pip" show cargo-zigbuild ziglang 2>/dev/null | grep -c -x -e "Version: $zigbuild_version" -e "Version: $zig_version" | grep -qx 2; then
        python3 -c 'import ensurepip' 2>/dev/null || apt_install_or_die python3-venv
        rm -rf "$venv"
        python3 -m venv "$venv"
        "$venv/bin/pip" install -q --disable-pip-version-check \
            "cargo-zigbuild==$zigbuild_version" "ziglang==$zig_version" </dev/null
    fi
    PATH=$venv/bin:$PATH
    zig=$(echo "$venv"/lib/python3*/site-packages/ziglang)
}

sysroot=$(rustc --print sysroot)
has_std() { compgen -G "$sysroot/lib/rustlib/$1/lib/libstd-*.rlib" >/dev/null; }

# The tool of binutils for a target.
binutil() { # TARGET TOOL
    local machine=${1%%-*}
    if [ "$machine" = "$(uname -m)" ]; then echo "$2"; else echo "$machine-linux-gnu-$2"; fi
}

setup_binutils() { # TARGET
    local machine=${1%%-*}
    have "$(binutil "$1" objcopy)" || apt_install "binutils-${machine/_/-}-linux-gnu"
}

# Builds the module from the sources in a folder, with nothing of the folder in it.
build() { # SOURCES TARGET BUILD-DIRECTORY
    local cargo_home=${CARGO_HOME:-$HOME/.cargo} triple=$2 flags maps pair
    [[ $2 != *-gnu ]] || triple=$2.$glibc
    # What rustc already calls so, unless it has its sources beside it.
    local rust_sources
    rust_sources=/rustc/$(rustc -vV | sed -n 's/^commit-hash: //p')
    flags=()
    maps="#"
    # Zig names what is below the working directory without it.
    for pair in "$1=/midi" "$3=/target" "$cargo_home=/cargo" "$zig=/zig" "${zig#"$1"/}=/zig" "$sysroot/lib/rustlib/src/rust=$rust_sources"; do
        flags+=("--remap-path-prefix=$pair")
        maps+=" +-ffile-prefix-map=$pair"
    done
    # For crash reports and debuggers; it is the sum of what is in the file.
    flags+=(-Clink-arg=-Wl,--build-id=sha1)
    # A shared library for musl cannot have all of it in itself.
    [[ $2 != *-musl ]] || flags+=(-Ctarget-feature=-crt-static)
    # Zig has libunwind compiled by clang, which reads this; what it has built is kept with its paths.
    (cd "$1" && RUSTFLAGS="${flags[*]}" CCC_OVERRIDE_OPTIONS=$maps CARGO_TARGET_DIR=$3 \
        ZIG_GLOBAL_CACHE_DIR=$3/zig ZIG_LOCAL_CACHE_DIR=$3/zig \
        cargo zigbuild --release --locked --lib --bins --target "$triple")
}

# Fails if the module or the program is not what it should be.
check() { # TARGET FOLDER
    local objdump exports newest file
    objdump=$(binutil "$1" objdump)
    exports=$("$objdump" -T "$2/libmidi.so" | awk '$4 != "*UND*" && $2 == "g" { print $NF }' | sort | xargs)
    [ "$exports" = "RedisModule_OnLoad RedisModule_OnUnload" ] || die "$2/libmidi.so exports $exports"
    for file in "$2"/{libmidi.so,midi-check-aof}; do
        newest=$("$objdump" -T "$file" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1) || true
        printf '%s\n' "${newest:-GLIBC_0}" "GLIBC_$glibc" | is_sorted || die "$file needs $newest"
        ! grep -aqF -e "$root" -e "${CARGO_HOME:-$HOME/.cargo}" "$file" || die "$file names folders of this machine."
    done
}

# Archives are equal if their files are.
archive() { # NAME FILES...
    tar -C "$dist" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
        --mode='u=rwX,go=rX' -c "${@:2}" | gzip -9n >"$dist/$1.tar.gz"
}

pack() { # TARGET BUILT
    local name=midi-$version-$1 objcopy others=()
    local folder=$dist/$name
    objcopy=$(binutil "$1" objcopy)
    mkdir -p "$folder"
    "$objcopy" --only-keep-debug "$2/libmidi.so" "$folder/libmidi.so.debug"
    "$objcopy" --strip-unneeded --remove-section=.comment "$2/libmidi.so" "$folder/libmidi.so"
    "$objcopy" --strip-all --remove-section=.comment "$2/midi-check-aof" "$folder/midi-check-aof"
    (cd "$folder" && "$objcopy" --add-gnu-debuglink=libmidi.so.debug libmidi.so)
    check "$1" "$folder"
    others=("LLVM libunwind, from Zig=$zig_version=Apache-2.0 WITH LLVM-exception=$zig/lib/libunwind/LICENSE.TXT")
    others+=("Rust standard library=$(rustc --version | cut -d' ' -f2)=MIT OR Apache-2.0=$(rust_notices)")
    python3 scripts/third_party.py "$1" "$folder/THIRD-PARTY-NOTICES" "$folder/midi.spdx.json" "${others[@]}"
    cp LICENSE README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md redis.conf.example "$folder"
    cp -r docs "$folder"
    rm "$folder/docs/benchmarks/rounds.json"
    archive "$name-debug" "$name/libmidi.so.debug"
    archive "$name" --exclude='*.debug' "$name"
}

# What Rust says of itself, for the code of its standard library.
rust_notices() {
    local file
    for file in "$sysroot"/share/doc/rust/{COPYRIGHT-library.html,COPYRIGHT} /usr/share/doc/libstd-rust*/copyright; do
        [ ! -e "$file" ] || { echo "$file"; return; }
    done
    die "Rust's own licences were not found below $sysroot/share/doc."
}

# Builds again, from copies of the sources in another folder, and compares.
compare() { # TARGET BUILT
    local again=$root/target/dist-again file
    rm -rf "$again"
    mkdir -p "$again/sources"
    git ls-files -z | tar --null -T - -c | tar -x -C "$again/sources"
    build "$again/sources" "$1" "$again/target"
    for file in libmidi.so midi-check-aof; do
        cmp "$2/$file" "$again/target/$1/release/$file" || die "Two builds of $file for $1 differ."
    done
    rm -rf "$again"
    echo "Two builds for $1, in two folders, have the same bytes."
}

build_target() { # TARGET
    has_std "$1" || { have rustup && rustup target add "$1" </dev/null; } || true
    has_std "$1" || { left_out+=("$1: there is no std for it (rustup target add $1)"); return 0; }
    setup_binutils "$1" || { left_out+=("$1: there is no $(binutil "$1" objcopy)"); return 0; }
    build "$root" "$1" "$root/target/dist-build"
    local folder=$root/target/dist-build/$1/release
    pack "$1" "$folder"
    [ -z "${CHECK:-}" ] || compare "$1" "$folder"
    built+=("$1")
}

read -ra targets <<<"${TARGETS:-${all_targets[*]}}"
have python3 || apt_install_or_die python3
setup_zig
rm -rf "$dist"
mkdir -p "$dist"
for target in "${targets[@]}"; do build_target "$target"; done
[ ${#built[@]} = 0 ] || (cd "$dist" && sha256sum -- *.tar.gz >SHA256SUMS && cat SHA256SUMS)
[ ${#left_out[@]} = 0 ] || printf 'LEFT OUT: %s\n' "${left_out[@]}"
[ ${#built[@]} -gt 0 ] || die "Nothing was built."
echo "Built for ${built[*]}, in $dist"
