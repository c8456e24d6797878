//! Redis's answers to commands on hashes, from plain maps that follow the t_hash.c of Redis 8.6.

use std::collections::{BTreeMap, BTreeSet};

use midi::store::UnixMs;

use super::model::{CLOCK, Said, error, integer, integer_argument, is_due, ok};

/// A value, and when its field expires.
type Field = (Vec<u8>, Option<UnixMs>);

/// Fields by name. Those that are due stay: nobody looks for them here.
pub type Fields = BTreeMap<Vec<u8>, Field>;

/// A key's value.
#[derive(Clone)]
pub enum Held {
    Text(Vec<u8>),
    Hash(Fields),
}

/// The keys, and when they expire.
#[derive(Default)]
pub struct Model {
    pub keys: BTreeMap<Vec<u8>, (Held, Option<UnixMs>)>,
}

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

impl Model {
    fn live(&self, key: &[u8]) -> Option<&(Held, Option<UnixMs>)> {
        self.keys.get(key).filter(|(_, at)| !is_due(*at))
    }

    /// The fields of a hash with those that are due; none if there is no key.
    ///
    /// # Errors
    /// The key holds a text.
    pub fn fields(&self, key: &[u8]) -> Result<Fields, Vec<Said>> {
        match self.live(key) {
            None => Ok(Fields::new()),
            Some((Held::Hash(fields), _)) => Ok(fields.clone()),
            Some((Held::Text(_), _)) => Err(error(WRONG_TYPE)),
        }
    }

    /// Those that a client sees.
    pub fn live_fields(&self, key: &[u8]) -> Fields {
        let mut fields = self.fields(key).unwrap_or_default();
        fields.retain(|_, (_, at)| !is_due(*at));
        fields
    }

    /// The key goes with its last field.
    fn put(&mut self, key: &[u8], fields: Fields) {
        let at = self.live(key).and_then(|(_, at)| *at);
        if fields.is_empty() {
            self.keys.remove(key);
        } else {
            self.keys.insert(key.to_vec(), (Held::Hash(fields), at));
        }
    }

    pub fn live_keys(&self) -> BTreeSet<Vec<u8>> {
        self.keys.keys().filter(|key| self.live(key).is_some()).cloned().collect()
    }

    /// A reply. The fields of HGETALL, HKEYS and HVALS are in the order of their names.
    pub fn run(&mut self, args: &[Vec<u8>]) -> Vec<Said> {
        self.general(args).unwrap_or_else(|| match self.fields(&args[1]) {
            Err(refusal) => refusal,
            Ok(fields) => self.on_fields(args, fields),
        })
    }

    /// Commands on keys, whatever they hold.
    fn general(&mut self, args: &[Vec<u8>]) -> Option<Vec<Said>> {
        let key = &args[1];
        Some(match &args[0][..] {
            b"set" => {
                self.keys.insert(key.clone(), (Held::Text(args[2].clone()), None));
                ok()
            }
            b"get" => match self.live(key) {
                None => vec![Said::Null],
                Some((Held::Text(text), _)) => vec![Said::Bulk(text.clone())],
                Some(_) => error(WRONG_TYPE),
            },
            b"type" => {
                let name = match self.live(key) {
                    None => "none",
                    Some((Held::Text(_), _)) => "string",
                    Some((Held::Hash(_), _)) => "hash",
                };
                vec![Said::Simple(name.into())]
            }
            b"exists" => integer(self.live(key).is_some().into()),
            b"del" => {
                let was_there = self.live(key).is_some();
                self.keys.remove(key);
                integer(was_there.into())
            }
            b"pexpire" => {
                let more = integer_argument(&args[2]).expect("made so");
                let is_there = self.live(key).is_some();
                if is_there && let Some((_, at)) = self.keys.get_mut(key) {
                    *at = Some(CLOCK.get() + more);
                }
                integer(is_there.into())
            }
            b"rename" => match self.live(key).cloned() {
                None => error("ERR no such key"),
                Some(held) => {
                    self.keys.remove(key);
                    self.keys.insert(args[2].clone(), held);
                    ok()
                }
            },
            b"copy" if key == &args[2] => error("ERR source and destination objects are the same"),
            b"copy" => {
                let held = self.live(key).cloned();
                let held = held.filter(|_| args.len() > 3 || self.live(&args[2]).is_none());
                let is_copied = held.is_some();
                self.keys.extend(held.map(|held| (args[2].clone(), held)));
                integer(is_copied.into())
            }
            _ => return None,
        })
    }

    fn on_fields(&mut self, args: &[Vec<u8>], mut hash: Fields) -> Vec<Said> {
        let (key, rest) = (&args[1], &args[2..]);
        let live = |hash: &Fields, name: &[u8]| {
            hash.get(name).filter(|(_, at)| !is_due(*at)).map(|(value, _)| value.clone())
        };
        let said = |value: Option<Vec<u8>>| value.map_or(Said::Null, Said::Bulk);
        let array = |elements: Vec<Said>| [vec![Said::Array(elements.len())], elements].concat();
        // Behind FIELDS and their number.
        let listed = || rest.iter().skip_while(|word| &word[..] != b"FIELDS").skip(2);
        let mut shown = hash.clone();
        shown.retain(|_, (_, at)| !is_due(*at));
        let reply = match &args[0][..] {
            b"hget" => vec![said(live(&hash, &rest[0]))],
            b"hmget" => array(rest.iter().map(|name| said(live(&hash, name))).collect()),
            b"hexists" => integer(live(&hash, &rest[0]).is_some().into()),
            b"hstrlen" => integer(live(&hash, &rest[0]).map_or(0, |value| value.len() as i64)),
            b"hlen" => integer(hash.len() as i64),
            b"hkeys" => array(shown.into_keys().map(Said::Bulk).collect()),
            b"hvals" => {
                let mut values: Vec<_> = shown.into_values().map(|(value, _)| value).collect();
                values.sort();
                array(values.into_iter().map(Said::Bulk).collect())
            }
            b"hgetall" => {
                let pairs = shown.into_iter().flat_map(|(name, (value, _))| [name, value]);
                array(pairs.map(Said::Bulk).collect())
            }
            b"hpexpiretime" => {
                let time = |name: &Vec<u8>| match shown.get(name) {
                    None => -2,
                    Some((_, at)) => at.unwrap_or(-1),
                };
                array(listed().map(|name| Said::Integer(time(name))).collect())
            }
            b"hset" => {
                let pairs = rest.chunks(2);
                let new = pairs.filter(|pair| {
                    let is_new = live(&hash, &pair[0]).is_none();
                    hash.insert(pair[0].clone(), (pair[1].clone(), None));
                    is_new
                });
                integer(new.count() as i64)
            }
            b"hsetnx" => {
                let is_new = live(&hash, &rest[0]).is_none();
                if is_new {
                    hash.insert(rest[0].clone(), (rest[1].clone(), None));
                }
                integer(is_new.into())
            }
            b"hincrby" => return self.increment(key, hash, rest),
            b"hdel" => {
                let there = rest
                    .iter()
                    .filter(|name| live(&hash, name).is_some() && hash.remove(&name[..]).is_some());
                integer(there.count() as i64)
            }
            b"hgetdel" => {
                let mut take = |name: &Vec<u8>| {
                    let value = live(&hash, name);
                    if value.is_some() {
                        hash.remove(name);
                    }
                    said(value)
                };
                array(listed().map(&mut take).collect())
            }
            b"hpexpireat" => {
                let at = integer_argument(&rest[0]).expect("made so");
                let condition = (&rest[1][..] != b"FIELDS").then(|| &rest[1][..]);
                let mut change = |name: &Vec<u8>| expire(&mut hash, name, at, condition);
                array(listed().map(|name| Said::Integer(change(name))).collect())
            }
            b"hpersist" => {
                array(listed().map(|name| Said::Integer(persist(&mut hash, name))).collect())
            }
            b"hgetex" => {
                let values = listed().map(|name| said(live(&hash, name))).collect();
                for name in listed() {
                    match integer_argument(&rest[1]) {
                        Some(at) => drop(expire(&mut hash, name, at, None)),
                        None => drop(persist(&mut hash, name)),
                    }
                }
                array(values)
            }
            b"hsetex" => return self.set_expiring(key, hash, rest),
            name => unreachable!("{}", String::from_utf8_lossy(name)),
        };
        self.put(key, hash);
        reply
    }

    /// hincrbyCommand.
    fn increment(&mut self, key: &[u8], mut hash: Fields, rest: &[Vec<u8>]) -> Vec<Said> {
        let old = hash.get(&rest[0]).filter(|(_, at)| !is_due(*at)).cloned();
        let (value, at) = old.unwrap_or((b"0".to_vec(), None));
        let Some(number) = integer_argument(&value) else {
            return error("ERR hash value is not an integer");
        };
        let sum = number + integer_argument(&rest[1]).expect("made so");
        hash.insert(rest[0].clone(), (sum.to_string().into_bytes(), at));
        self.put(key, hash);
        integer(sum)
    }

    /// HSETEX key [FNX | FXX] KEEPTTL | PXAT time FIELDS number field value ...
    fn set_expiring(&mut self, key: &[u8], mut hash: Fields, rest: &[Vec<u8>]) -> Vec<Said> {
        let position = |word: &[u8]| rest.iter().position(|given| given == word);
        let pairs = || rest[position(b"FIELDS").expect("made so") + 2..].chunks(2);
        let is_there =
            |hash: &Fields, name: &[u8]| hash.get(name).is_some_and(|(_, at)| !is_due(*at));
        let refused = pairs().any(|pair| match is_there(&hash, &pair[0]) {
            true => position(b"FNX").is_some(),
            false => position(b"FXX").is_some(),
        });
        if refused {
            return integer(0);
        }
        let given = position(b"PXAT").and_then(|at| integer_argument(&rest[at + 1]));
        for pair in pairs() {
            let kept = hash.get(&pair[0]).and_then(|(_, at)| *at).filter(|at| !is_due(Some(*at)));
            let at = if position(b"KEEPTTL").is_some() { kept } else { given };
            hash.insert(pair[0].clone(), (pair[1].clone(), at));
            if given.is_some_and(|at| at <= CLOCK.get()) {
                hash.remove(&pair[0]);
            }
        }
        self.put(key, hash);
        integer(1)
    }
}

/// HPEXPIREAT of a field.
fn expire(hash: &mut Fields, name: &[u8], at: UnixMs, condition: Option<&[u8]>) -> i64 {
    let Some((_, current)) = hash.get_mut(name).filter(|(_, at)| !is_due(*at)) else { return -2 };
    let is_allowed = match (condition, *current) {
        (None, _) => true,
        (Some(b"NX"), current) => current.is_none(),
        (Some(b"XX"), current) => current.is_some(),
        (Some(b"GT"), current) => current.is_some_and(|current| at > current),
        (Some(_), current) => current.is_none_or(|current| at < current),
    };
    if !is_allowed {
        return 0;
    }
    *current = Some(at);
    if at <= CLOCK.get() {
        hash.remove(name);
        return 2;
    }
    1
}

/// HPERSIST of a field.
fn persist(hash: &mut Fields, name: &[u8]) -> i64 {
    match hash.get_mut(name) {
        Some((_, at)) if !is_due(*at) => at.take().map_or(-1, |_| 1),
        _ => -2,
    }
}
