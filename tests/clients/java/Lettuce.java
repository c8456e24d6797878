// Lettuce against midi's port: what a program that knows nothing of midi does.
//
// Environment: MIDI_PORT, where midi listens; MIDI_TLS_PORT and MIDI_TLS_CA, its port for TLS and who signs there;
// MIDI_HOST_PORT, the host's own port.

import io.lettuce.core.AclCategory;
import io.lettuce.core.AclSetuserArgs;
import io.lettuce.core.ClientOptions;
import io.lettuce.core.KeyScanArgs;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScanIterator;
import io.lettuce.core.SetArgs;
import io.lettuce.core.SslOptions;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.StatusOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.CommandType;
import io.lettuce.core.protocol.ProtocolVersion;
import java.io.File;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;

class Lettuce {
  static final int PORT = Integer.parseInt(System.getenv("MIDI_PORT"));
  static final int HOST_PORT = Integer.parseInt(System.getenv("MIDI_HOST_PORT"));

  static void check(boolean right, String what) {
    if (!right) throw new AssertionError(what);
  }

  static void refused(String text, Runnable action) {
    try {
      action.run();
    } catch (RuntimeException error) {
      String seen = error + " " + error.getCause();
      check(seen.contains(text), seen);
      return;
    }
    throw new AssertionError("not refused: " + text);
  }

  static RedisURI at(int port) {
    return RedisURI.create("127.0.0.1", port);
  }

  static void commands(RedisCommands<String, String> redis) throws InterruptedException {
    redis.flushall();
    check(redis.ping().equals("PONG"), "PING");
    check(redis.set("k", "v").equals("OK"), "SET");
    check(redis.get("k").equals("v"), "GET");
    check(redis.get("nosuch") == null, "GET of nothing");
    check(redis.set("k", "w", SetArgs.Builder.nx()) == null, "SET NX");
    redis.mset(Map.of("a", "1", "b", "2"));
    var values = redis.mget("a", "nosuch", "b");
    check(values.get(0).getValue().equals("1") && !values.get(1).hasValue(), "MGET");
    check(redis.incrby("a", 41) == 42, "INCRBY");
    check(redis.exists("a", "b", "nosuch") == 2, "EXISTS");
    check(redis.rename("k", "l").equals("OK"), "RENAME");
    check(redis.del("a", "b") == 2, "DEL");
    check(redis.keys("*").equals(List.of("l")), "KEYS");
    check(redis.dbsize() == 1, "DBSIZE");
    check(redis.info().contains("redis_version"), "INFO");
    redis.set("long", "v", SetArgs.Builder.ex(1000));
    check(redis.ttl("long") > 900, "TTL");
    redis.psetex("short", 20, "v");
    for (int tries = 0; redis.get("short") != null; tries++) {
      check(tries < 10_000, "waited too long");
      Thread.sleep(5);
    }
    redis.clientSetname("tester");
    check(redis.clientGetname().equals("tester"), "CLIENT GETNAME");
    check(redis.clientInfo().contains(" lib-name=Lettuce"), redis.clientInfo());
    refused("not an integer or out of range", () -> redis.incr("l"));
  }

  static RedisURI overTls() {
    return RedisURI.builder(at(Integer.parseInt(System.getenv("MIDI_TLS_PORT")))).withSsl(true).build();
  }

  static void binary(RedisClient client, RedisURI place) {
    try (var connection = client.connect(ByteArrayCodec.INSTANCE, place)) {
      byte[] bytes = new byte[1 << 20];
      for (int at = 0; at < bytes.length; at++) bytes[at] = (byte) at;
      byte[] key = Arrays.copyOf(bytes, 256);
      connection.sync().set(key, bytes);
      check(Arrays.equals(connection.sync().get(key), bytes), "bytes");
    }
  }

  // Commands of a connection go out without waiting for replies.
  static void pipelines(StatefulRedisConnection<String, String> connection) throws Exception {
    var replies = new ArrayList<RedisFuture<String>>();
    for (int number = 0; number < 5000; number++) {
      connection.async().set("key:" + number % 100, "" + number);
      replies.add(connection.async().get("key:" + number % 100));
    }
    for (int number = 0; number < 5000; number++) check(replies.get(number).get().equals("" + number), "pipeline");
  }

  static void transactions(RedisCommands<String, String> redis, RedisCommands<String, String> other) {
    redis.multi();
    redis.set("n", "1");
    redis.incr("n");
    var done = redis.exec();
    check(done.get(0).equals("OK") && done.get(1).equals(2L), "EXEC");
    redis.watch("n");
    other.set("n", "7");
    redis.multi();
    redis.set("n", "8");
    check(redis.exec().wasDiscarded(), "WATCH");
    check(redis.get("n").equals("7"), "what EXEC refused");
  }

  static void scans(RedisCommands<String, String> redis) {
    redis.flushdb();
    for (int number = 0; number < 3000; number++) redis.set("key:" + number, "v");
    var seen = new HashSet<String>();
    ScanIterator.scan(redis, KeyScanArgs.Builder.matches("key:*").limit(500)).forEachRemaining(seen::add);
    check(seen.size() == 3000, "SCAN");
  }

  static void logins(RedisClient client) {
    try (var admin = client.connect(at(HOST_PORT))) {
      var rules = AclSetuserArgs.Builder.on().addPassword("secret").keyPattern("key*");
      rules.addCommand(CommandType.GET).addCategory(AclCategory.CONNECTION);
      admin.sync().aclSetuser("alice", rules);
      // The library does not know the name.
      var more = new CommandArgs<>(StringCodec.UTF8).add("SETUSER").add("alice").add("+midi.get");
      admin.sync().dispatch(CommandType.ACL, new StatusOutput<>(StringCodec.UTF8), more);
    }
    var login = RedisURI.builder(at(PORT));
    try (var connection = client.connect(login.withAuthentication("alice", "secret").build())) {
      connection.sync().get("key1");
      refused("NOPERM", () -> connection.sync().set("key1", "v"));
      refused("NOPERM", () -> connection.sync().get("other"));
    }
    refused("WRONGPASS", () -> client.connect(login.withAuthentication("alice", "wrong").build()));
  }

  public static void main(String[] args) throws Exception {
    for (var protocol : new ProtocolVersion[] {null, ProtocolVersion.RESP2, ProtocolVersion.RESP3}) {
      var client = RedisClient.create();
      var trusting = SslOptions.builder().trustManager(new File(System.getenv("MIDI_TLS_CA"))).build();
      var options = ClientOptions.builder().sslOptions(trusting);
      if (protocol != null) options.protocolVersion(protocol);
      client.setOptions(options.build());
      for (var place : List.of(at(PORT), overTls())) {
        try (var one = client.connect(place); var two = client.connect(place)) {
          commands(one.sync());
          binary(client, place);
          pipelines(one);
          transactions(one.sync(), two.sync());
          scans(two.sync());
        }
      }
      logins(client);
      client.shutdown();
    }
    System.out.println("Lettuce on Java " + System.getProperty("java.version") + ": right");
  }
}
