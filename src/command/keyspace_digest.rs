//! KEYSPACEDIGEST: its row and its argument. `engine/jobs/long` computes the digest.

use super::rename::database;
use super::row::every_key;
use super::{
    Access, Action, ArgKind, Args, Cluster, Command, Error, Flags, Long, OnAllKeys, OtherDbs, Walk,
    WalkStep, arg, docs, tips,
};

/// The step at each key.
const READ: &[WalkStep] = &[WalkStep { command: "midi.get", access: Access::Read }];

pub(super) static KEYSPACEDIGEST: Command = Command {
    name: "keyspacedigest",
    arity: -1,
    flags: Flags { readonly: true, ..Flags::NONE },
    categories: "keyspace read slow dangerous",
    twins: &["keys"],
    group: "server",
    tips: &[tips::ALL_SHARDS, tips::SPECIAL_RESPONSE],
    long: Long::Always,
    other_dbs: OtherDbs::All,
    walk: Some(&Walk { keys: every_key, argument: 0, steps: |_| READ, hash_steps: |_| READ }),
    docs: docs("Returns a digest of all keys, values and expiries: the same for equal data.")
        .costs("O(N), N being the number of keys plus the bytes of their values")
        .takes(&[arg("db", ArgKind::Integer).optional()]),
    action: Action::AllKeys(OnAllKeys::KeyspaceDigest),
    ..Command::USUAL
};

/// The database that KEYSPACEDIGEST names, below `databases`; `None` for all.
///
/// # Errors
/// What SELECT answers to a wrong number; too many arguments.
pub fn digested_db(
    args: &Args<'_>,
    databases: u32,
    cluster: Cluster,
) -> Result<Option<u32>, Error> {
    match args.len() {
        1 => return Ok(None),
        2 => {}
        _ => return Err(Error::Syntax),
    }
    // A cluster node still has the numbers of its other databases, and never any key there.
    match database(args, 1, databases) {
        Ok(1..) | Err(Error::DbOutOfRange) if cluster == Cluster::OneDatabase => {
            Err(Error::NotInCluster("Reading another database"))
        }
        db => db.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str], cluster: Cluster) -> Result<Option<u32>, Error> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        digested_db(&Args::new(&words), 16, cluster)
    }

    #[test]
    fn only_databases_that_the_host_has() {
        for (cluster, other) in [
            (Cluster::Off, Ok(Some(15))),
            (Cluster::ManyDatabases, Ok(Some(15))),
            (Cluster::OneDatabase, Err(Error::NotInCluster("Reading another database"))),
        ] {
            assert_eq!(parsed(&["keyspacedigest"], cluster), Ok(None));
            assert_eq!(parsed(&["keyspacedigest", "0"], cluster), Ok(Some(0)));
            assert_eq!(parsed(&["keyspacedigest", "15"], cluster), other);
            let beyond = other.and(Err(Error::DbOutOfRange));
            assert_eq!(parsed(&["keyspacedigest", "16"], cluster), beyond);
            assert_eq!(parsed(&["keyspacedigest", "-1"], cluster), beyond);
            assert_eq!(parsed(&["keyspacedigest", "x"], cluster), Err(Error::NotAnInteger));
            assert_eq!(parsed(&["keyspacedigest", "0", "0"], cluster), Err(Error::Syntax));
        }
    }
}
