#!/usr/bin/env bash
# Makes Debian packages of what `make dist` has built, in target/dist: one for each target with glibc. If it has built
# nothing, that is done first, for this machine's own target.
. "$(dirname "$0")/setup.sh"

have dpkg-deb || apt_install_or_die dpkg
dist=$root/target/dist
version=$(sed -n 's/^version *= *"\(.*\)"/\1/p' Cargo.toml | head -1)
compgen -G "$dist/midi-$version-*/libmidi.so" >/dev/null ||
    TARGETS=$(uname -m)-unknown-linux-gnu bash scripts/dist.sh
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH

control() { # ARCHITECTURE
    cat <<END
Package: midi-module
Version: $version
Architecture: $1
Maintainer: ${DEB_MAINTAINER:-The midi authors}
Section: database
Priority: optional
Depends: libc6 (>= 2.28)
Enhances: redis-server (>= 5:7.0.6), valkey-server
Breaks: redis-server (<< 5:7.0.6)
Description: second keyspace for Redis and Valkey that all cores serve
 midi is a module for redis-server and valkey-server. It has keys of its own,
 which all cores serve, beside those of the server: in the server's RDB, its
 append-only file and its replicas, through MIDI.* commands and ports of midi's
 own for clients of Redis and memcached.
END
}

package() { # FOLDER ARCHITECTURE
    local tree=$root/target/deb/$2 docs host
    docs=$tree/usr/share/doc/midi-module
    rm -rf "$tree"
    mkdir -p "$tree"/DEBIAN "$tree"/usr/{bin,lib/midi} "$tree"/etc/midi "$docs"
    cp "$1/libmidi.so" "$tree/usr/lib/midi/"
    cp "$1/midi-check-aof" "$tree/usr/bin/"
    for host in redis valkey; do
        mkdir -p "$tree/usr/lib/$host/modules"
        ln -s ../../midi/libmidi.so "$tree/usr/lib/$host/modules/libmidi.so"
    done
    cp packaging/deb/midi.conf "$tree/etc/midi/"
    cp -r packaging/deb/README.Debian "$1/README.md" "$1/docs" "$1/midi.spdx.json" "$docs/"
    cat "$1/LICENSE" "$1/THIRD-PARTY-NOTICES" >"$docs/copyright"
    gzip -9nc "$1/CHANGELOG.md" >"$docs/changelog.gz"
    control "$2" >"$tree/DEBIAN/control"
    echo /etc/midi/midi.conf >"$tree/DEBIAN/conffiles"
    (cd "$tree" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$tree/DEBIAN/md5sums"
    chmod -R u=rwX,go=rX "$tree"
    # dpkg-deb takes the times of files that are newer than this commit down to it, and leaves older ones.
    find "$tree" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group -Zxz --build "$tree" "$dist/midi-module_${version}_$2.deb"
}

for pair in x86_64:amd64 aarch64:arm64; do
    folder=$dist/midi-$version-${pair%:*}-unknown-linux-gnu
    if [ -e "$folder/libmidi.so" ]; then package "$folder" "${pair#*:}"; else echo "LEFT OUT: ${pair#*:}: make dist has not built it"; fi
done
compgen -G "$dist/*.deb" >/dev/null || die "No package: make dist has built nothing for glibc."
(cd "$dist" && sha256sum -- *.tar.gz *.deb >SHA256SUMS)
