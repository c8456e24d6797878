//! Reading one key.

use super::hash::LiveFields;
use super::{Args, Error, Limits, OneKey};
use crate::store::{EntryRef, Fields, Now, StringRef, Table};

/// What a command that only reads one key works with. Other threads may read the shard, too.
pub struct ReadKey<'a> {
    entry: Option<EntryRef<'a>>,
    table: Option<&'a Table>,
    /// All arguments.
    pub args: Args<'a>,
    /// The limits that apply.
    pub limits: &'a Limits,
    now: &'a Now,
}

impl<'a> ReadKey<'a> {
    /// A key with this entry (`None` if it does not exist at this time), in the table of the
    /// client's database (`None` if that has no keys in the shard).
    #[inline(always)]
    pub fn new(
        entry: Option<EntryRef<'a>>,
        table: Option<&'a Table>,
        args: Args<'a>,
        limits: &'a Limits,
        now: &'a Now,
    ) -> Self {
        ReadKey { entry, table, args, limits, now }
    }

    /// Whether the key exists.
    #[inline(always)]
    pub fn is_there(&self) -> bool {
        self.entry.is_some()
    }

    /// The size of its entry with the value, in bytes; 0 if it does not exist.
    #[inline(always)]
    pub fn weight(&self) -> usize {
        self.entry.as_ref().map_or(0, |entry| entry.weight())
    }

    /// The key's memory in bytes, if it exists; see [`Table::bytes_of`].
    pub(super) fn bytes(&self) -> Option<usize> {
        self.entry.as_ref().zip(self.table).map(|(entry, table)| table.bytes_of(entry))
    }

    /// Whether to read all fields of the key's hash, which has so many, is long work that can
    /// become a job.
    pub(super) fn reads_long(&self, fields: usize) -> bool {
        self.limits.is_long_read(fields, || self.weight())
    }
}

impl OneKey<'_> {
    /// The key, only to be read.
    #[inline(always)]
    pub(super) fn as_read(&self) -> ReadKey<'_> {
        let table = Some(self.key.table());
        ReadKey::new(self.key.read(), table, self.args, self.limits, self.key.now())
    }
}

/// What commands read of their key, whether they change it or not.
pub(super) trait ReadsKey {
    /// The key's entry; `None` if the key does not exist.
    fn entry(&self) -> Option<EntryRef<'_>>;

    /// The time at which the command runs.
    fn now(&self) -> &Now;

    /// The key's value; `None` if the key does not exist.
    ///
    /// # Errors
    /// [`Error::WrongType`] if it is not a string.
    #[inline(always)]
    fn string(&self) -> Result<Option<StringRef<'_>>, Error> {
        self.entry().map(|entry| entry.string()).transpose().map_err(Error::from)
    }

    /// The length of the key's value; `None` if the key does not exist.
    ///
    /// # Errors
    /// [`Error::WrongType`] if it is not a string.
    fn len(&self) -> Result<Option<usize>, Error> {
        Ok(self.string()?.map(|value| value.len()))
    }

    /// The fields of the key's hash, but for those whose expiry has passed; `None` if the key does
    /// not exist.
    ///
    /// # Errors
    /// [`Error::WrongType`] if it is not a hash.
    #[inline]
    fn fields(&self) -> Result<Option<LiveFields<'_>>, Error> {
        let fields = self.entry().map(Fields::of).transpose()?;
        Ok(fields.map(|fields| LiveFields::new(fields, self.now())))
    }
}

impl ReadsKey for ReadKey<'_> {
    #[inline(always)]
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.entry.clone()
    }

    #[inline]
    fn now(&self) -> &Now {
        self.now
    }
}

impl ReadsKey for OneKey<'_> {
    #[inline(always)]
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.key.read()
    }

    #[inline]
    fn now(&self) -> &Now {
        self.key.now()
    }
}
