// Redisson against midi's port: locks, maps, counters and topics as programs in Java use them. Most of them are
// scripts.
//
// Environment: MIDI_PORT, where midi listens.

import java.time.Duration;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.redisson.Redisson;
import org.redisson.api.BatchOptions;
import org.redisson.api.RLock;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RateType;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;
import org.redisson.config.Protocol;

class Locks {
  static final int PATIENCE = 90;

  static void check(boolean right, String what) {
    if (!right) throw new AssertionError(what);
  }

  static RedissonClient connect(Protocol protocol) {
    Config config = new Config();
    config.setProtocol(protocol).setCodec(new StringCodec());
    config.useSingleServer()
        .setAddress("redis://127.0.0.1:" + System.getenv("MIDI_PORT"))
        .setTimeout(PATIENCE * 1000)
        .setConnectionMinimumIdleSize(2)
        .setConnectionPoolSize(8);
    return Redisson.create(config);
  }

  static void values(RedissonClient redis) {
    redis.getKeys().flushdb();
    var bucket = redis.<String>getBucket("bucket");
    bucket.set("v", Duration.ofSeconds(1000));
    check(bucket.remainTimeToLive() > 900_000, "TTL");
    check(bucket.compareAndSet("v", "w") && bucket.getAndSet("x").equals("w"), "compareAndSet");
    check(redis.getAtomicLong("counter").addAndGet(41) == 41, "addAndGet");
    var map = redis.<String, String>getMap("map");
    map.putAll(Map.of("a", "1", "b", "2"));
    check(map.putIfAbsent("a", "3").equals("1") && map.fastRemove("b") == 1, "map");
    check(map.readAllMap().equals(Map.of("a", "1")), "readAllMap");
    var batch = redis.createBatch(BatchOptions.defaults().executionMode(BatchOptions.ExecutionMode.REDIS_WRITE_ATOMIC));
    batch.getAtomicLong("counter").incrementAndGetAsync();
    batch.getBucket("bucket").getAsync();
    check(batch.execute().getResponses().size() == 2, "batch");
  }

  // Threads of two programs take turns, woken by messages.
  static void locks(RedissonClient one, RedissonClient other) throws InterruptedException {
    AtomicInteger inside = new AtomicInteger(), rounds = new AtomicInteger();
    Thread[] threads = new Thread[6];
    for (int number = 0; number < threads.length; number++) {
      RLock lock = (number % 2 == 0 ? one : other).getLock("lock");
      threads[number] = new Thread(() -> {
        for (int round = 0; round < 20; round++) {
          lock.lock();
          try {
            if (inside.incrementAndGet() == 1) rounds.incrementAndGet();
            inside.decrementAndGet();
          } finally {
            lock.unlock();
          }
        }
      });
      threads[number].start();
    }
    for (Thread thread : threads) thread.join();
    check(rounds.get() == 120, "rounds alone: " + rounds.get());
    RLock lock = one.getLock("lease");
    lock.lock(1, TimeUnit.SECONDS);
    check(other.getLock("lease").tryLock(PATIENCE, TimeUnit.SECONDS), "the lease ends");
    one.getReadWriteLock("both").readLock().lock();
    check(!other.getReadWriteLock("both").writeLock().tryLock(), "a reader is in");
  }

  static void messages(RedissonClient one, RedissonClient other) throws InterruptedException {
    CountDownLatch heard = new CountDownLatch(2);
    one.getTopic("topic").addListener(String.class, (channel, text) -> heard.countDown());
    one.getPatternTopic("top*").addListener(String.class, (pattern, channel, text) -> heard.countDown());
    check(other.getTopic("topic").publish("x") == 2, "PUBLISH");
    check(heard.await(PATIENCE, TimeUnit.SECONDS), "messages");
  }

  // A script that needs what midi lacks fails at once. It is not taken for one that is unknown, and sent again.
  static void missing(RedissonClient redis) throws Exception {
    RRateLimiter limiter = redis.getRateLimiter("limiter");
    limiter.trySetRate(RateType.OVERALL, 2, Duration.ofSeconds(1));
    try {
      limiter.tryAcquireAsync().toCompletableFuture().get(PATIENCE, TimeUnit.SECONDS);
    } catch (ExecutionException error) {
      check(error.toString().contains("midi's commands"), error.toString());
      return;
    }
    throw new AssertionError("sorted sets?");
  }

  public static void main(String[] args) throws Exception {
    for (Protocol protocol : Protocol.values()) {
      RedissonClient one = connect(protocol), other = connect(protocol);
      values(one);
      locks(one, other);
      messages(one, other);
      missing(one);
      one.shutdown();
      other.shutdown();
    }
    System.out.println("Redisson on Java " + System.getProperty("java.version") + ": right");
  }
}
