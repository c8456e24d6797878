#!/usr/bin/env bash
# Runs clients of other languages on midi's port. Each language's own tools fetch them into target/clients, in the
# versions that tests/clients names. Unavailable clients are skipped, and listed at the end.
. "$(dirname "$0")/setup.sh"
setup redis

skipped=()
skip() { skipped+=("$1"); }
# The directory for a client, with its files from tests/clients.
copied() { mkdir -p "target/clients/$1" && cp -R "tests/clients/$1/." "target/clients/$1"; }

python_client() {
    setup_python_client
    [ -n "${MIDI_CLIENT_PYTHON:-}" ] || { skip "redis-py and libraries that use it: see above"; return 0; }
    local venv=target/clients/python-libraries
    [ -x "$venv/bin/python" ] || python3 -m venv "$venv" || { skip "Python libraries: no venv"; return 0; }
    "$venv/bin/pip" install -q --disable-pip-version-check -r tests/clients/python/requirements.txt </dev/null ||
        { skip "Python libraries: they could not be installed"; return 0; }
    export MIDI_CLIENT_PYTHON_LIBRARIES="$venv/bin/python tests/clients/python/libraries.py"
}

node_clients() {
    have node && have npm || { skip "node-redis, ioredis and libraries that use them: no node with npm"; return 0; }
    copied node
    (cd target/clients/node && npm ci --silent --no-audit --no-fund </dev/null) ||
        { skip "node-redis, ioredis and libraries that use them: npm could not install them"; return 0; }
    export MIDI_CLIENT_NODE_REDIS="node target/clients/node/node-redis.js"
    export MIDI_CLIENT_IOREDIS="node target/clients/node/ioredis.js"
    export MIDI_CLIENT_NODE_LIBRARIES="node target/clients/node/libraries.js"
}

go_client() {
    have go || { skip "go-redis: no go"; return 0; }
    copied go
    (cd target/clients/go && go build -o midi-client .) || { skip "go-redis: it could not be built"; return 0; }
    export MIDI_CLIENT_GO=target/clients/go/midi-client
}

# Fetches the packages that a folder's pom.xml names, and compiles its programs.
compiled() {
    copied "$1"
    (cd "target/clients/$1" && mvn -q -B dependency:copy-dependencies -DoutputDirectory=lib </dev/null &&
        javac -nowarn -Xlint:none -cp 'lib/*' -d classes ./*.java) && return 0
    skip "$2: they could not be fetched or compiled"
    return 1
}

java_clients() {
    local libraries="Jedis, Lettuce, XMemcached and spymemcached" folder=target/clients
    have mvn && have javac || { skip "$libraries, and Redisson: no mvn with javac"; return 0; }
    if compiled java "$libraries"; then
        local java="java -cp $folder/java/classes:$folder/java/lib/*"
        export MIDI_CLIENT_JEDIS="$java Jedis" MIDI_CLIENT_LETTUCE="$java Lettuce"
        export MIDI_CLIENT_JAVA_MEMCACHED="$java Memcached"
    fi
    if compiled redisson Redisson; then
        export MIDI_CLIENT_REDISSON="java -cp $folder/redisson/classes:$folder/redisson/lib/* Locks"
    fi
}

exporter() {
    if have redis_exporter; then
        export MIDI_REDIS_EXPORTER=redis_exporter
        return 0
    fi
    have go || { skip "redis_exporter: no go"; return 0; }
    GOBIN="$PWD/target/clients/exporter" go install github.com/oliver006/redis_exporter@v1.88.0 </dev/null ||
        { skip "redis_exporter: it could not be built"; return 0; }
    export MIDI_REDIS_EXPORTER=target/clients/exporter/redis_exporter
}

python_client
node_clients
go_client
java_clients
exporter
for program in redis-cli redis-benchmark memtier_benchmark; do
    have "$program" || skip "$program: there is none"
done

cargo build --release --locked
cargo test --locked --no-fail-fast --test port --test tools -- clients:: programs:: exporter:: --nocapture --test-threads 1
if [ ${#skipped[@]} -gt 0 ]; then
    printf '\nSKIPPED:\n'
    printf '    %s\n' "${skipped[@]}"
fi
