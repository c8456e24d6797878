// XMemcached and spymemcached against midi's memcached port: what a program that knows nothing of midi does.
//
// Environment: MIDI_MEMCACHED_PORT, where midi listens.

import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import net.rubyeye.xmemcached.GetsResponse;
import net.rubyeye.xmemcached.XMemcachedClient;
import net.rubyeye.xmemcached.XMemcachedClientBuilder;
import net.spy.memcached.CASResponse;
import net.spy.memcached.CASValue;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.MemcachedClient;

class Memcached {
  static final InetSocketAddress SERVER =
      new InetSocketAddress("127.0.0.1", Integer.parseInt(System.getenv("MIDI_MEMCACHED_PORT")));
  // The machine may be too busy for the libraries' patience of a few seconds.
  static final int PATIENCE_MS = 90_000;

  static void check(boolean right, String what) {
    if (!right) throw new AssertionError(what);
  }

  static List<String> names(int count) {
    List<String> names = new ArrayList<>();
    for (int number = 0; number < count; number++) names.add("key:" + number);
    return names;
  }

  static void xmemcached() throws Exception {
    var builder = new XMemcachedClientBuilder(List.of(SERVER));
    builder.setOpTimeout(PATIENCE_MS);
    var client = (XMemcachedClient) builder.build();
    client.flushAll();
    check(client.get("nosuch") == null, "a miss");
    check(client.set("text", 100, "b") && client.get("text").equals("b"), "set");
    check(!client.add("text", 100, "c") && client.replace("text", 100, "b"), "add and replace");
    check(client.append("text", "c") && client.prepend("text", "a"), "append and prepend");
    check(client.get("text").equals("abc"), "abc");
    check(client.set("object", 100, new ArrayList<>(List.of(1, "two"))), "an object");
    check(client.get("object").equals(List.of(1, "two")), "the object");
    String large = "x".repeat(500_000);
    check(client.set("large", 0, large) && client.get("large").equals(large), "a large value");
    check(client.incr("count", 5, 1) == 1 && client.incr("count", 5) == 6, "incr");
    check(client.decr("count", 100) == 0, "decr");
    GetsResponse<String> seen = client.gets("text");
    check(client.cas("text", 0, "new", seen.getCas()), "cas");
    check(!client.cas("text", 0, "newer", seen.getCas()), "cas, late");
    check(client.touch("text", 1000) && client.get("text").equals("new"), "touch");
    List<String> names = names(1000);
    for (String name : names) client.setWithNoReply(name, 0, name);
    check(client.get(names).size() == 1000, "a get of many");
    check(client.delete("text") && !client.delete("text"), "delete");
    check(client.getVersions().get(SERVER).startsWith("1.6."), "version");
    check(!client.getStats().get(SERVER).isEmpty(), "stats");
    client.shutdown();
  }

  static void spymemcached() throws Exception {
    // Its text protocol is the one it takes by itself.
    var factory = new ConnectionFactoryBuilder().setOpTimeout(PATIENCE_MS).build();
    var client = new MemcachedClient(factory, List.of(SERVER));
    check(client.flush().get(), "flush");
    check(client.get("nosuch") == null, "a miss");
    check(client.set("text", 100, "b").get() && client.get("text").equals("b"), "set");
    check(!client.add("text", 100, "c").get() && client.replace("text", 100, "b").get(), "add and replace");
    check(client.append("text", "c").get() && client.prepend("text", "a").get(), "append and prepend");
    check(client.get("text").equals("abc"), "abc");
    check(client.set("object", 100, new ArrayList<>(List.of(1, "two"))).get(), "an object");
    check(client.get("object").equals(List.of(1, "two")), "the object");
    check(client.incr("count", 5, 1) == 1 && client.incr("count", 5) == 6, "incr");
    check(client.decr("count", 100) == 0, "decr");
    CASValue<Object> seen = client.gets("text");
    check(client.cas("text", seen.getCas(), "new") == CASResponse.OK, "cas");
    check(client.cas("text", seen.getCas(), "newer") == CASResponse.EXISTS, "cas, late");
    check(client.touch("text", 1000).get(), "touch");
    List<String> names = names(1000);
    for (String name : names) client.set(name, 0, name);
    Map<String, Object> found = client.getBulk(names);
    check(found.size() == 1000 && found.get("key:999").equals("key:999"), "a get of many");
    check(client.delete("text").get() && !client.delete("text").get(), "delete");
    check(client.getVersions().get(SERVER).startsWith("1.6."), "version");
    check(!client.getStats().get(SERVER).isEmpty(), "stats");
    client.shutdown(10, TimeUnit.SECONDS);
  }

  public static void main(String[] args) throws Exception {
    System.setProperty("net.spy.log.LoggerImpl", "net.spy.memcached.compat.log.SLF4JLogger");
    try {
      xmemcached();
      spymemcached();
    } catch (Throwable error) {
      error.printStackTrace();
      // The libraries' threads would keep the program alive.
      System.exit(1);
    }
    System.out.println("XMemcached and spymemcached: all is right");
    System.exit(0);
  }
}
