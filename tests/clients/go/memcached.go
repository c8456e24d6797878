package main

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/bradfitz/gomemcache/memcache"
)

// gomemcache against midi's memcached port: what a program that knows nothing of midi does.
func memcached() {
	m := memcache.New("127.0.0.1:" + os.Getenv("MIDI_MEMCACHED_PORT"))
	m.Timeout, m.MaxIdleConns = hang, 8
	defer m.Close()
	check(m.Ping() == nil, "ping")
	check(m.FlushAll() == nil, "flush_all")
	_, err := m.Get("go")
	check(errors.Is(err, memcache.ErrCacheMiss), "a miss", err)
	check(m.Set(&memcache.Item{Key: "go", Value: []byte("value"), Flags: 7, Expiration: 100}) == nil, "set")
	item := must(m.Get("go"))
	check(string(item.Value) == "value" && item.Flags == 7, "get", item)
	check(errors.Is(m.Add(&memcache.Item{Key: "go"}), memcache.ErrNotStored), "add")
	check(m.Append(&memcache.Item{Key: "go", Value: []byte("!")}) == nil, "append")
	check(m.Prepend(&memcache.Item{Key: "go", Value: []byte("?")}) == nil, "prepend")
	check(errors.Is(m.CompareAndSwap(item), memcache.ErrCASConflict), "a conflict")
	item = must(m.Get("go"))
	item.Value = []byte("swapped")
	check(m.CompareAndSwap(item) == nil, "cas")
	check(m.Touch("go", 1000) == nil, "touch")
	check(m.Set(&memcache.Item{Key: "count", Value: []byte("9")}) == nil, "set")
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for range 100 {
				must(m.Increment("count", 1))
			}
		})
	}
	clients.Wait()
	check(must(m.Decrement("count", 9)) == 800, "each is counted once")
	keys := []string{"go", "none"}
	for number := range 100 {
		keys = append(keys, fmt.Sprint("key", number))
		check(m.Set(&memcache.Item{Key: keys[number+2], Value: []byte{byte(number)}}) == nil, "set")
	}
	items := must(m.GetMulti(keys))
	check(len(items) == 101 && string(items["go"].Value) == "swapped", "many keys", len(items))
	check(m.Delete("go") == nil && errors.Is(m.Delete("go"), memcache.ErrCacheMiss), "delete")
}
