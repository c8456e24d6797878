//! Sorting keys by shard: a thread that makes many keys takes each shard once for several of them,
//! and reads its directory and segments once.

/// Moves the `planned` items to `sorted`, in the order of their shards (a counting sort).
pub(in crate::engine) fn sort_by_shard<T: Copy>(
    planned: &mut Vec<T>,
    sorted: &mut Vec<T>,
    shards: u32,
    shard: impl Fn(&T) -> u32,
) {
    let mut places = vec![0; shards as usize + 1];
    for item in &*planned {
        places[shard(item) as usize + 1] += 1;
    }
    for at in 1..places.len() {
        places[at] += places[at - 1];
    }
    sorted.clone_from(planned);
    for item in planned.drain(..) {
        let place = &mut places[shard(&item) as usize];
        sorted[*place] = item;
        *place += 1;
    }
}
