// Jedis against midi's port: what a program that knows nothing of midi does.
//
// Environment: MIDI_PORT, where midi listens; MIDI_TLS_PORT and MIDI_TLS_CA, its port for TLS and who signs there;
// MIDI_HOST_PORT, the host's own port.

import java.io.FileInputStream;
import java.nio.charset.StandardCharsets;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocketFactory;
import javax.net.ssl.TrustManagerFactory;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.Protocol;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;

class Jedis {
  static final int PORT = Integer.parseInt(System.getenv("MIDI_PORT"));
  static final int TLS_PORT = Integer.parseInt(System.getenv("MIDI_TLS_PORT"));
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

  // The machine may be too busy for the library's patience of a few seconds.
  static DefaultJedisClientConfig.Builder patient() {
    return DefaultJedisClientConfig.builder().timeoutMillis(90_000);
  }

  static RedisClient connect(int port, JedisClientConfig config) {
    return RedisClient.builder().hostAndPort("127.0.0.1", port).clientConfig(config).build();
  }

  static void commands(RedisClient redis) {
    redis.flushAll();
    check(redis.ping().equals("PONG"), "PING");
    check(redis.set("k", "v").equals("OK"), "SET");
    check(redis.get("k").equals("v"), "GET");
    check(redis.get("nosuch") == null, "GET of nothing");
    check(redis.set("k", "w", new SetParams().nx()) == null, "SET NX");
    redis.mset("a", "1", "b", "2");
    check(redis.mget("a", "nosuch", "b").equals(Arrays.asList("1", null, "2")), "MGET");
    check(redis.incrBy("a", 41) == 42, "INCRBY");
    check(redis.exists("a", "b", "nosuch") == 2, "EXISTS");
    check(redis.rename("k", "l").equals("OK"), "RENAME");
    check(redis.del("a", "b") == 2, "DEL");
    check(redis.keys("*").equals(Set.of("l")), "KEYS");
    check(redis.dbSize() == 1, "DBSIZE");
    byte[] bytes = new byte[1 << 20];
    for (int at = 0; at < bytes.length; at++) bytes[at] = (byte) at;
    byte[] key = Arrays.copyOf(bytes, 256);
    redis.set(key, bytes);
    check(Arrays.equals(redis.get(key), bytes), "bytes");
  }

  static void expiry(RedisClient redis) throws InterruptedException {
    redis.set("long", "v", new SetParams().ex(1000));
    check(redis.ttl("long") > 900, "TTL");
    check(redis.persist("long") == 1, "PERSIST");
    redis.psetex("short", 20, "v");
    for (int tries = 0; redis.get("short") != null; tries++) {
      check(tries < 10_000, "waited too long");
      Thread.sleep(5);
    }
  }

  static void pipelines(RedisClient redis) {
    @SuppressWarnings("unchecked")
    Response<String>[] replies = new Response[5000];
    try (var pipeline = redis.pipelined()) {
      for (int number = 0; number < replies.length; number++) {
        pipeline.set("key:" + number % 100, "" + number);
        replies[number] = pipeline.get("key:" + number % 100);
      }
      pipeline.sync();
    }
    for (int number = 0; number < replies.length; number++) {
      check(replies[number].get().equals("" + number), "pipeline");
    }
  }

  static void transactions(RedisClient redis) {
    try (var transaction = redis.multi()) {
      transaction.set("n", "1");
      transaction.incr("n");
      check(transaction.exec().equals(List.of("OK", 2L)), "EXEC");
    }
    try (var transaction = redis.transaction(false)) {
      transaction.watch("n");
      redis.set("n", "7");
      transaction.multi();
      transaction.set("n", "8");
      check(transaction.exec() == null, "WATCH");
    }
    check(redis.get("n").equals("7"), "what EXEC refused");
  }

  static void scans(RedisClient redis) {
    redis.flushDB();
    try (var pipeline = redis.pipelined()) {
      for (int number = 0; number < 3000; number++) pipeline.set("key:" + number, "v");
    }
    Set<String> seen = new HashSet<>();
    String cursor = ScanParams.SCAN_POINTER_START;
    do {
      var page = redis.scan(cursor, new ScanParams().match("key:*").count(500));
      seen.addAll(page.getResult());
      cursor = page.getCursor();
    } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
    check(seen.size() == 3000, "SCAN");
  }

  static String text(Object reply) {
    return new String((byte[]) reply, StandardCharsets.UTF_8);
  }

  static void connections(RedisClient redis) {
    String info = text(redis.sendCommand(Protocol.Command.CLIENT, "INFO"));
    check(info.contains(" lib-name=jedis"), info);
    refused("not an integer or out of range", () -> redis.incrBy("key:1", 1));
    refused("wrong number of arguments", () -> redis.sendCommand(Protocol.Command.GET));
    refused("syntax error", () -> redis.sendCommand(Protocol.Command.SET, "k", "v", "WHAT"));
    check(redis.ping().equals("PONG"), "PING");
  }

  static JedisClientConfig login(RedisProtocol protocol, String password) {
    return patient().protocol(protocol).user("alice").password(password).build();
  }

  static void logins(RedisProtocol protocol) {
    try (var admin = connect(HOST_PORT, patient().build())) {
      admin.sendCommand(Protocol.Command.ACL, "SETUSER", "alice", "on", ">secret", "-@all", "+midi.get", "+get",
          "+@connection", "~key*");
    }
    try (var alice = connect(PORT, login(protocol, "secret"))) {
      alice.get("key1");
      refused("NOPERM", () -> alice.set("key1", "v"));
      refused("NOPERM", () -> alice.get("other"));
    }
    refused("WRONGPASS", () -> {
      try (var intruder = connect(PORT, login(protocol, "wrong"))) {
        intruder.get("key1");
      }
    });
  }

  static SSLSocketFactory trusting() throws Exception {
    var roots = KeyStore.getInstance(KeyStore.getDefaultType());
    roots.load(null, null);
    try (var file = new FileInputStream(System.getenv("MIDI_TLS_CA"))) {
      roots.setCertificateEntry("authority", CertificateFactory.getInstance("X.509").generateCertificate(file));
    }
    var trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    trust.init(roots);
    var context = SSLContext.getInstance("TLS");
    context.init(null, trust.getTrustManagers(), null);
    return context.getSocketFactory();
  }

  public static void main(String[] args) throws Exception {
    for (var config : List.of(
        patient().ssl(true).sslSocketFactory(trusting()).build(),
        patient().build(),
        patient().protocol(RedisProtocol.RESP2).build(),
        patient().protocol(RedisProtocol.RESP3).database(2).clientName("me").build())) {
      try (var redis = connect(config.isSsl() ? TLS_PORT : PORT, config)) {
        commands(redis);
        expiry(redis);
        pipelines(redis);
        transactions(redis);
        scans(redis);
        connections(redis);
      }
    }
    logins(RedisProtocol.RESP2);
    logins(RedisProtocol.RESP3);
    System.out.println("Jedis on Java " + System.getProperty("java.version") + ": right");
  }
}
