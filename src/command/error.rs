//! The errors of commands: small values in the code, which become text at the door.

use super::Args;
use super::quoted::{HostCommand, elsewhere, error_about, shown};
use crate::store::WrongType;

/// Declares the errors: each with its meaning, and with the text of its reply, which may be made of
/// the command's `$name` at the door and of its `$args`.
macro_rules! errors {
    (($name:ident, $args:ident)
     $($(#[$doc:meta])* $kind:ident $(($with:ident: $type:ty))? => $text:expr,)*) => {
        /// Why a command was not carried out.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Error {
            $($(#[$doc])* $kind $(($type))?,)*
        }

        impl Error {
            /// The text of the reply, without `-` and line end. It is Redis's own text if Redis has
            /// the case. `name` is the command's name at the door.
            pub fn text(self, $name: &str, $args: &Args<'_>) -> Vec<u8> {
                match self {
                    $(Error::$kind $(($with))? => $text.into(),)*
                }
            }
        }
    };
}

errors! {
    (name, args)
    /// Arguments that do not fit together.
    Syntax => "ERR syntax error",
    /// Too few or too many arguments.
    Arity => format!("ERR wrong number of arguments for '{name}' command"),
    /// An argument or a value is not a 64-bit integer.
    NotAnInteger => "ERR value is not an integer or out of range",
    /// An argument is negative.
    NotPositive => "ERR value is out of range, must be positive",
    /// An expiry that is not positive, or does not fit 64 bits in milliseconds.
    InvalidExpireTime => format!("ERR invalid expire time in '{name}' command"),
    /// EXPIRE does not know the option at this argument.
    UnsupportedOption(at: usize) => error_about("ERR Unsupported option ", args.get(at), ""),
    /// EXPIRE with NX and another condition.
    NxWithOthers => "ERR NX and XX, GT or LT options at the same time are not compatible",
    /// EXPIRE with GT and LT.
    GtWithLt => "ERR GT and LT options at the same time are not compatible",
    /// SCAN's cursor is not a number.
    InvalidCursor => "ERR invalid cursor",
    /// The key does not exist.
    NoSuchKey => "ERR no such key",
    /// COPY or MOVE onto itself.
    SameObject => "ERR source and destination objects are the same",
    /// No database has that number.
    DbOutOfRange => "ERR DB index is out of range",
    /// The host is a node of a cluster, where this is not allowed.
    NotInCluster(what: &'static str) => format!("ERR {what} is not allowed in cluster mode"),
    /// Another node has taken the slot since the command was sent.
    SlotMoved => "TRYAGAIN The slot has moved to another node",
    /// This node gives the slot away, key by key, and midi's keys do not go along.
    SlotMigrates => "TRYAGAIN The slot migrates to another node",
    /// There is no such slot.
    InvalidSlot => "ERR Invalid slot",
    /// The host is not a node of a cluster.
    NoCluster => "ERR This instance has cluster support disabled",
    /// SWAPDB's first argument is not a 32-bit integer.
    InvalidFirstDb => "ERR invalid first DB index",
    /// SWAPDB's second argument is not a 32-bit integer.
    InvalidSecondDb => "ERR invalid second DB index",
    /// A number that does not fit 32 bits.
    OutOfIntRange =>
        format!("ERR value is out of range, value must between {} and {}", i32::MIN, i32::MAX),
    /// RESTORE without REPLACE onto an existing key.
    BusyKey => "BUSYKEY Target key name already exists.",
    /// RESTORE's time to live is below 0.
    InvalidTtl => "ERR Invalid TTL value, must be >= 0",
    /// RESTORE's IDLETIME is below 0.
    InvalidIdleTime => "ERR Invalid IDLETIME value, must be >= 0",
    /// RESTORE's FREQ is not one byte.
    InvalidFrequency => "ERR Invalid FREQ value, must be >= 0 and <= 255",
    /// RESTORE's payload is of a newer host, or damaged.
    WrongPayload => "ERR DUMP payload version or checksum are wrong",
    /// RESTORE's payload holds no value.
    BadData => "ERR Bad data format",
    /// RESTORE's payload holds a value of a type that midi does not have.
    OtherType =>
        "ERR the DUMP payload is of another type; midi holds strings and hashes",
    /// OBJECT, MEMORY or SLOWLOG has no such subcommand.
    UnknownSubcommand => unknown_subcommand(name, args),
    /// A subcommand of OBJECT or MEMORY about the host's own memory. Under its standard name it is
    /// the host's command.
    HostsSubcommand => if name.contains('.') {
        unknown_subcommand(name, args)
    } else {
        let subcommand = args.get(1).to_ascii_lowercase();
        elsewhere(&[name.as_bytes(), b"|", &subcommand].concat(), HostCommand::OfServer)
    },
    /// Too few or too many arguments for the subcommand.
    SubcommandArity => {
        let subcommand = String::from_utf8_lossy(args.get(1)).to_ascii_lowercase();
        format!("ERR wrong number of arguments for '{name}|{subcommand}' command")
    },
    /// Too many arguments for a subcommand that takes an optional one.
    SubcommandSyntax => {
        let hint = format!("'. Try {} HELP.", name.to_uppercase());
        let problem = "ERR unknown subcommand or wrong number of arguments for '";
        error_about(problem, shown(args.get(1)), &hint)
    },
    /// OBJECT FREQ: nothing counts how often keys are used.
    FrequencyNotTracked =>
        "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note \
         that when switching between policies at runtime LRU and LFU data will take some time to \
         adjust.",
    /// OBJECT IDLETIME: nothing notes when keys are used.
    IdleTimeNotTracked => "ERR midi does not track the idle time of keys yet",
    /// More keys than `midi.max-atomic-keys` in a command that is atomic over them.
    TooManyKeys(limit: usize) =>
        format!("ERR too many keys for one atomic command (midi.max-atomic-keys {limit})"),
    /// The commands of a transaction would log more than `midi.max-transaction-bytes`.
    TransactionTooLarge(limit: usize) => format!(
        "ERR the commands of this transaction log and keep more than allowed \
         (midi.max-transaction-bytes {limit})"
    ),
    /// A pattern longer than `midi.max-pattern-bytes`.
    PatternTooLong(limit: usize) =>
        format!("ERR pattern exceeds maximum allowed size (midi.max-pattern-bytes {limit})"),
    /// The name of a channel, or a pattern, longer than `midi.max-channel-bytes`.
    ChannelTooLong(limit: usize) =>
        format!("ERR channel exceeds maximum allowed size (midi.max-channel-bytes {limit})"),
    /// A key longer than `midi.max-key-bytes`.
    KeyTooLong(limit: usize) =>
        format!("ERR key exceeds maximum allowed size (midi.max-key-bytes {limit})"),
    /// A value longer than `midi.max-value-bytes`.
    ValueTooLong(limit: usize) =>
        format!("ERR string exceeds maximum allowed size (midi.max-value-bytes {limit})"),
    /// `midi.max-jobs` long commands are already running.
    TooManyJobs(limit: usize) =>
        format!("BUSY too many long commands are running (midi.max-jobs {limit}). See MIDI.JOBS."),
    /// `midi.max-queued-commands` commands are already waiting for a shard.
    TooManyQueued(limit: usize) =>
        format!("BUSY too many commands are waiting (midi.max-queued-commands {limit})"),
    /// SLOWLOG GET of a number that is none, or too small.
    SlowLogCount => "ERR count should be greater than or equal to -1",
    /// MIDI.JOBS CANCEL of a job that does not exist.
    NoSuchJob => "ERR no such job",
    /// The job was cancelled by MIDI.JOBS CANCEL.
    JobCancelled(id: u64) => format!("ERR job {id} was cancelled by MIDI.JOBS CANCEL"),
    /// The job's client has closed its sending half, so it may have disconnected.
    JobLeft(id: u64) => format!("ERR job {id} has ended: its client sends no more"),
    /// A long command reached the host's `maxmemory`.
    OutOfMemory => "OOM command not allowed when used memory > 'maxmemory'.",
    /// midi's keys have reached `midi.maxmemory`, and none may be evicted.
    OverOwnLimit => "OOM command not allowed when used memory > 'midi.maxmemory'.",
    /// A database has reached its own limit, and none of its keys may be evicted.
    OverDatabaseLimit(db: u32) => format!(
        "OOM command not allowed when used memory > 'midi.db-maxmemory' of database {db}."
    ),
    /// `maxmemory` is reached, whatever fills it, and midi has no key to evict.
    NothingToEvict =>
        "OOM command not allowed when used memory > 'maxmemory', and midi has no key to evict. \
         midi.maxmemory reserves memory for midi's keys.",
    /// The host cannot write to its AOF; the system's number of the error, 0 if it is not known.
    AofError(errno: i32) => aof_error(errno),
    /// A unit would read writes that are not in the AOF yet, and cannot be logged during a pause.
    LogWaits => "TRYAGAIN midi's newest writes are not in the AOF yet, and clients are paused",
    /// The server became a replica before its stream had the writes that the reply acknowledges.
    Unblocked =>
        "UNBLOCKED force unblock from blocking operation, instance state changed (master -> \
         replica?)",
    /// WAIT on a replica.
    WaitOnReplica =>
        "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if \
         a replica is configured to be writable (which is not the default) writes to replicas are \
         just local and are not propagated.",
    /// WAITAOF on a replica.
    WaitAofOnReplica =>
        "ERR WAITAOF cannot be used with replica instances. Please also note that writes to \
         replicas are just local and are not propagated.",
    /// WAITAOF for the server's own AOF, which is off.
    WaitAofIsOff => "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
    /// WAITAOF for the server's own AOF; the server does not report how far it is synced.
    WaitAofUnknown =>
        "ERR WAITAOF on midi's port needs appendfsync always and no-appendfsync-on-rewrite no: \
         otherwise the server does not tell what is synced",
    /// WAITAOF for the AOFs of replicas.
    WaitAofOfReplicas =>
        "ERR WAITAOF on midi's port cannot tell what replicas have synced: set numreplicas to 0, \
         and use WAIT for what they have received",
    /// An argument that must be 0 or 1.
    NotZeroOrOne => "ERR value is out of range, value must between 0 and 1",
    /// A timeout that is not a 64-bit integer.
    TimeoutNotAnInteger => "ERR timeout is not an integer or out of range",
    /// A timeout below 0.
    TimeoutNegative => "ERR timeout is negative",
    /// A timeout that ends after the last millisecond that there is.
    TimeoutOutOfRange => "ERR timeout is out of range",
    /// The host is loading its data.
    Loading => "LOADING Redis is loading the dataset in memory",
    /// The host is a replica without its master, and is set not to serve stale data.
    MasterDown =>
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    /// The process is a forked child, in which no command of midi's can run.
    InChild => "ERR midi's keys are not available in a forked child",
    /// The host is a replica that clients may not write to.
    ReadOnly => "READONLY You can't write against a read only replica.",
    /// The host's last save failed, and the host is set to refuse writes then.
    DiskError =>
        "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist \
         to disk. Commands that may modify the data set are disabled, because this instance is \
         configured to report errors during writes if RDB snapshotting fails \
         (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the \
         RDB error.",
    /// The host has fewer replicas than its settings require for writes.
    FewReplicas => "NOREPLICAS Not enough good replicas to write.",
    /// The host is busy with a script.
    Busy =>
        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    /// CLIENT IMPORT-SOURCE while the host does not import keys.
    NotImporting => "ERR Server is not in import mode",
    /// No client may call this command.
    NotForClients => format!("NOPERM this user has no permissions to run the '{name}' command"),
    /// The user may not access a key that IMPORT or EXPORT reached.
    NoPermission =>
        "NOPERM this user has no permissions to access one of the keys used as arguments",
    /// The host refused a write of EXPORT; its log has the reason.
    HostRefused => "ERR the host refused a write; its log has the reason",
    /// A panic was caught; the host's log has its location.
    Internal => "ERR internal error in midi; see the server's log",
    /// Not a failure: the reply is too large for this thread, and nothing has been done. The caller
    /// runs the command on a worker.
    ReplyTooLarge => "ERR reply too large for this thread",
    /// INCR and similar commands: the sum does not fit 64 bits.
    IncrementOverflow => "ERR increment or decrement would overflow",
    /// DECRBY of the one number that cannot be negated.
    DecrementOverflow => "ERR decrement would overflow",
    /// An argument or a value is not a floating-point number.
    NotAFloat => "ERR value is not a valid float",
    /// INCRBYFLOAT: the sum is not finite.
    NotFinite => "ERR increment would produce NaN or Infinity",
    /// HINCRBY of a value that is not a 64-bit integer.
    FieldNotAnInteger => "ERR hash value is not an integer",
    /// HINCRBYFLOAT of a value that is not a floating-point number.
    FieldNotAFloat => "ERR hash value is not a float",
    /// HINCRBYFLOAT with an infinite increment.
    InfiniteFieldIncrement => "ERR value is NaN or Infinity",
    /// HTTL and its like without the word FIELDS.
    NoFieldsWord => "ERR Mandatory argument FIELDS is missing or not at the right position",
    /// HTTL and its like of no fields.
    BadNumberOfFields => "ERR Number of fields must be a positive integer",
    /// HTTL and its like with another number of fields than they say.
    NumberOfFieldsDiffers => "ERR The `numfields` parameter must match the number of arguments",
    /// A time below 0 as a field's expiry.
    NegativeFieldExpiry => "ERR invalid expire time, must be >= 0",
    /// A number of fields that HEXPIRE and its like do not take.
    NoFieldsToExpire => "ERR Parameter `numFields` should be greater than 0",
    /// A number of fields that HGETEX and HSETEX do not take.
    InvalidNumberOfFields => "ERR invalid number of fields",
    /// Fewer fields than there should be, in a command whose options may follow them.
    TooFewFields => "ERR wrong number of arguments",
    /// HEXPIRE with FIELDS and too little behind it.
    NothingBehindFields => "ERR FIELDS requires at least numfields and one field argument",
    /// The word FIELDS twice.
    FieldsTwice => "ERR FIELDS keyword specified multiple times",
    /// HEXPIRE or HGETEX without the word FIELDS.
    MissingFields => "ERR missing FIELDS argument",
    /// The argument at this place is no option of the command.
    UnknownArgument(at: usize) => error_about("ERR unknown argument: ", args.get(at), ""),
    /// An option that only a similar command has.
    OptionOfAnother => "ERR unknown argument",
    /// HEXPIRE with several of NX, XX, GT and LT.
    SeveralConditions => "ERR Multiple condition flags specified",
    /// HSETEX with both of FXX and FNX, or one of them twice.
    FxxAndFnx => "ERR Only one of FXX or FNX arguments can be specified",
    /// HGETEX or HSETEX with two expiries; the word is the last one that it may have.
    SeveralExpiries(word: &'static str) =>
        format!("ERR Only one of EX, PX, EXAT, PXAT or {word} arguments can be specified"),
    /// EX or one of its like at the end.
    MissingExpireTime => "ERR missing expire time",
    /// HRANDFIELD with the smallest 64-bit integer.
    BeyondLong => format!(
        "ERR value is out of range, value must between {} and {}", -i64::MAX, i64::MAX
    ),
    /// HRANDFIELD of so many fields that their values do not fit.
    OutOfRange => "ERR value is out of range",
    /// HRANDFIELD of more fields, with repetition, than one reply has.
    TooManyDrawn(limit: usize) => format!("ERR too many fields for one reply (at most {limit})"),
    /// INCREX: one of its numbers is not a 64-bit integer.
    IncrexNotAnInteger(which: IncrexNumber) =>
        format!("ERR {} is not an integer or out of range", which.name()),
    /// INCREX: one of its numbers is not a floating-point number.
    IncrexNotAFloat(which: IncrexNumber) => format!("ERR {} is not a valid float", which.name()),
    /// INCREX with an infinite increment.
    InfiniteIncrement => "ERR BYFLOAT increment cannot be Infinity",
    /// INCREX of a value that is infinite.
    InfiniteValue => "ERR value cannot be Infinity",
    /// INCREX with a lower bound above the upper one.
    BoundsCross => "ERR LBOUND can't be greater than UBOUND",
    /// INCREX with ENX and no expiry.
    EnxWithoutExpiry => "ERR ENX flag requires an expiration",
    /// INCREX: the difference that was added does not fit.
    AppliedOverflow => "ERR applied increment would overflow",
    /// SETRANGE with a negative offset.
    OffsetOutOfRange => "ERR offset is out of range",
    /// A bit's offset is not a number, or is beyond the longest allowed value.
    BitOffsetOutOfRange => "ERR bit offset is not an integer or out of range",
    /// SETBIT with a bit other than 0 and 1.
    NotABit => "ERR bit is not an integer or out of range",
    /// BITPOS with a bit other than 0 and 1.
    NoBitToFind => "ERR The bit argument must be 1 or 0.",
    /// BITOP NOT of several keys.
    BitopNotOfSeveral => "ERR BITOP NOT must be called with a single source key.",
    /// BITOP DIFF, DIFF1 or ANDOR of one key.
    BitopOfOne => {
        let name = String::from_utf8_lossy(args.get(1)).to_uppercase();
        format!("ERR BITOP {name} must be called with at least two source keys.")
    },
    /// BITFIELD with an unknown type.
    InvalidField =>
        "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but \
         i64 is.",
    /// BITFIELD with an unknown OVERFLOW.
    InvalidOverflow => "ERR Invalid OVERFLOW type specified",
    /// BITFIELD_RO with an operation that writes.
    FieldsReadOnly => "ERR BITFIELD_RO only supports the GET subcommand",
    /// MSETEX without a valid number of pairs.
    InvalidPairCount => "ERR invalid numkeys value",
    /// MSETEX with fewer pairs than its number of pairs.
    MissingPairs => "ERR wrong number of key-value pairs",
    /// DELEX with an unknown condition.
    InvalidComparison => "ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE",
    /// SCAN was asked for no values.
    NoValuesOfKeys => "ERR NOVALUES option can only be used in HSCAN",
    /// DELEX with a condition, of a key that is no string.
    ConditionOfOther => "ERR Key should be of string type if conditions are specified",
    /// A digest of the wrong length.
    InvalidDigest => "ERR must be exactly 16 hexadecimal characters",
    /// LCS with LEN and IDX.
    LcsLenAndIdx => "ERR If you want both the length and indexes, please just use IDX.",
    /// LCS of values whose table would exceed the longest allowed value.
    LcsTooLarge => "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
    /// The key holds a value of another type.
    WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value",
    /// LCS of a value that is not a string.
    LcsWrongType => "ERR The specified keys must contain string values",
    /// Not a failure: this is long work, and nothing has been done.
    LongWork => "ERR this is long work",
}

/// Which of INCREX's numbers an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncrexNumber {
    /// After BYINT or BYFLOAT.
    Increment,
    /// After LBOUND.
    Lower,
    /// After UBOUND.
    Upper,
}

impl IncrexNumber {
    /// Its name in Redis's error texts.
    fn name(self) -> &'static str {
        match self {
            IncrexNumber::Increment => "Increment",
            IncrexNumber::Lower => "LBOUND",
            IncrexNumber::Upper => "UBOUND",
        }
    }
}

impl From<WrongType> for Error {
    #[inline]
    fn from(_: WrongType) -> Self {
        Error::WrongType
    }
}

impl Error {
    /// [`Error::text`] of an error that names neither a command nor its arguments.
    pub fn bare_text(self) -> Vec<u8> {
        self.text("", &Args::new(&[]))
    }
}

fn unknown_subcommand(name: &str, args: &Args<'_>) -> Vec<u8> {
    let hint = format!("'. Try {} HELP.", name.to_uppercase());
    error_about("ERR unknown subcommand '", shown(args.get(1)), &hint)
}

fn aof_error(errno: i32) -> String {
    if errno == 0 {
        return "MISCONF Errors writing to the AOF file".into();
    }
    let reason = std::io::Error::from_raw_os_error(errno).to_string();
    let reason = reason.split(" (os error").next().unwrap_or_default();
    format!("MISCONF Errors writing to the AOF file: {reason}")
}
