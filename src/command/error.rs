//! The errors of commands: small values in the code, which become text at the door.

use super::Args;
use super::quoted::{HostCommand, elsewhere, error_about, shown};
use crate::store::WrongType;

/// Why a command was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Arguments that do not fit together.
    Syntax,
    /// Too few or too many arguments.
    Arity,
    /// An argument or a value is not a 64-bit integer.
    NotAnInteger,
    /// An argument is negative.
    NotPositive,
    /// An expiry that is not positive, or does not fit 64 bits in milliseconds.
    InvalidExpireTime,
    /// EXPIRE does not know the option at this argument.
    UnsupportedOption(usize),
    /// EXPIRE with NX and another condition.
    NxWithOthers,
    /// EXPIRE with GT and LT.
    GtWithLt,
    /// SCAN's cursor is not a number.
    InvalidCursor,
    /// The key does not exist.
    NoSuchKey,
    /// COPY or MOVE onto itself.
    SameObject,
    /// No database has that number.
    DbOutOfRange,
    /// The host is a node of a cluster, where this is not allowed.
    NotInCluster(&'static str),
    /// Another node has taken the slot since the command was sent.
    SlotMoved,
    /// There is no such slot.
    InvalidSlot,
    /// The host is not a node of a cluster.
    NoCluster,
    /// SWAPDB's first argument is not a 32-bit integer.
    InvalidFirstDb,
    /// SWAPDB's second argument is not a 32-bit integer.
    InvalidSecondDb,
    /// A number that does not fit 32 bits.
    OutOfIntRange,
    /// RESTORE without REPLACE onto an existing key.
    BusyKey,
    /// RESTORE's time to live is below 0.
    InvalidTtl,
    /// RESTORE's IDLETIME is below 0.
    InvalidIdleTime,
    /// RESTORE's FREQ is not one byte.
    InvalidFrequency,
    /// RESTORE's payload is of a newer host, or damaged.
    WrongPayload,
    /// RESTORE's payload holds no value.
    BadData,
    /// RESTORE's payload holds a value that is not a string.
    NotAString,
    /// OBJECT or MEMORY has no such subcommand.
    UnknownSubcommand,
    /// A subcommand of OBJECT or MEMORY about the host's own memory. Under its standard name it is
    /// the host's command.
    HostsSubcommand,
    /// Too few or too many arguments for the subcommand.
    SubcommandArity,
    /// OBJECT FREQ: nothing counts how often keys are used.
    FrequencyNotTracked,
    /// OBJECT IDLETIME: nothing notes when keys are used.
    IdleTimeNotTracked,
    /// More keys than `midi.max-atomic-keys` in a command that is atomic over them.
    TooManyKeys(usize),
    /// The commands of a transaction would log more than `midi.max-transaction-bytes`.
    TransactionTooLarge(usize),
    /// A pattern longer than `midi.max-pattern-bytes`.
    PatternTooLong(usize),
    /// A key longer than `midi.max-key-bytes`.
    KeyTooLong(usize),
    /// A value longer than `midi.max-value-bytes`.
    ValueTooLong(usize),
    /// `midi.max-jobs` long commands are already running.
    TooManyJobs(usize),
    /// `midi.max-queued-commands` commands are already waiting for a shard.
    TooManyQueued(usize),
    /// MIDI.JOBS CANCEL of a job that does not exist.
    NoSuchJob,
    /// The job was cancelled by MIDI.JOBS CANCEL.
    JobCancelled(u64),
    /// The job's client has closed its sending half, so it may have disconnected.
    JobLeft(u64),
    /// A long command reached the host's `maxmemory`.
    OutOfMemory,
    /// The host cannot write to its AOF; the system's number of the error, 0 if it is not known.
    AofError(i32),
    /// What a unit would read is not in the AOF yet, and cannot be logged during a pause.
    LogWaits,
    /// The server became a replica before its master's stream had what the reply tells of.
    Unblocked,
    /// WAIT on a replica.
    WaitOnReplica,
    /// WAITAOF on a replica.
    WaitAofOnReplica,
    /// WAITAOF for the server's own AOF, which is off.
    WaitAofIsOff,
    /// WAITAOF for the server's own AOF, of which is not known what is synced.
    WaitAofUnknown,
    /// WAITAOF for the AOFs of replicas.
    WaitAofOfReplicas,
    /// An argument that must be 0 or 1.
    NotZeroOrOne,
    /// A timeout that is not a 64-bit integer.
    TimeoutNotAnInteger,
    /// A timeout below 0.
    TimeoutNegative,
    /// A timeout that ends after the last millisecond that there is.
    TimeoutOutOfRange,
    /// The host is loading its data.
    Loading,
    /// The host is a replica without its master, and is set not to serve stale data.
    MasterDown,
    /// The process is a forked child, in which no command of midi's can run.
    InChild,
    /// The host is a replica that clients may not write to.
    ReadOnly,
    /// The host's last save failed, and the host is set to refuse writes then.
    DiskError,
    /// The host has fewer replicas than its settings require for writes.
    FewReplicas,
    /// The host is busy with a script.
    Busy,
    /// CLIENT IMPORT-SOURCE while the host does not import keys.
    NotImporting,
    /// No client may call this command.
    NotForClients,
    /// The user may not access a key that IMPORT or EXPORT reached.
    NoPermission,
    /// The host refused a write of EXPORT; its log has the reason.
    HostRefused,
    /// A panic was caught; the host's log has its location.
    Internal,
    /// Not a failure: the reply is too large for this thread, and nothing has been done. The caller
    /// runs the command on a worker.
    ReplyTooLarge,
    /// INCR and similar commands: the sum does not fit 64 bits.
    IncrementOverflow,
    /// DECRBY of the one number that cannot be negated.
    DecrementOverflow,
    /// An argument or a value is not a floating-point number.
    NotAFloat,
    /// INCRBYFLOAT: the sum is not finite.
    NotFinite,
    /// INCREX: one of its numbers is not a 64-bit integer.
    IncrexNotAnInteger(IncrexNumber),
    /// INCREX: one of its numbers is not a floating-point number.
    IncrexNotAFloat(IncrexNumber),
    /// INCREX with an infinite increment.
    InfiniteIncrement,
    /// INCREX of a value that is infinite.
    InfiniteValue,
    /// INCREX with a lower bound above the upper one.
    BoundsCross,
    /// INCREX with ENX and no expiry.
    EnxWithoutExpiry,
    /// INCREX: what was added does not fit.
    AppliedOverflow,
    /// SETRANGE with a negative offset.
    OffsetOutOfRange,
    /// A bit's offset is not a number, or is beyond the longest allowed value.
    BitOffsetOutOfRange,
    /// SETBIT with a bit other than 0 and 1.
    NotABit,
    /// BITPOS with a bit other than 0 and 1.
    NoBitToFind,
    /// BITOP NOT of several keys.
    BitopNotOfSeveral,
    /// BITOP DIFF, DIFF1 or ANDOR of one key.
    BitopOfOne,
    /// BITFIELD with an unknown type.
    InvalidField,
    /// BITFIELD with an unknown OVERFLOW.
    InvalidOverflow,
    /// BITFIELD_RO with an operation that writes.
    FieldsReadOnly,
    /// MSETEX without a valid number of pairs.
    InvalidPairCount,
    /// MSETEX with fewer pairs than its number of pairs.
    MissingPairs,
    /// DELEX with an unknown condition.
    InvalidComparison,
    /// A digest of the wrong length.
    InvalidDigest,
    /// LCS with LEN and IDX.
    LcsLenAndIdx,
    /// LCS of values whose table would exceed the longest allowed value.
    LcsTooLarge,
    /// The key holds a value of another type.
    WrongType,
    /// LCS of a value that is not a string.
    LcsWrongType,
    /// Not a failure: this is long work, and nothing has been done.
    LongWork,
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

    /// The text of the reply, without `-` and line end. It is Redis's own text if Redis has the
    /// case. `name` is the command's name at the door.
    pub fn text(self, name: &str, args: &Args<'_>) -> Vec<u8> {
        match self {
            Error::Syntax => "ERR syntax error".into(),
            Error::Arity => format!("ERR wrong number of arguments for '{name}' command").into(),
            Error::NotAnInteger => "ERR value is not an integer or out of range".into(),
            Error::NotPositive => "ERR value is out of range, must be positive".into(),
            Error::InvalidExpireTime => {
                format!("ERR invalid expire time in '{name}' command").into()
            }
            Error::UnsupportedOption(at) => {
                error_about("ERR Unsupported option ", args.get(at), "")
            }
            Error::NxWithOthers => {
                "ERR NX and XX, GT or LT options at the same time are not compatible".into()
            }
            Error::GtWithLt => "ERR GT and LT options at the same time are not compatible".into(),
            Error::InvalidCursor => "ERR invalid cursor".into(),
            Error::NoSuchKey => "ERR no such key".into(),
            Error::SameObject => "ERR source and destination objects are the same".into(),
            Error::DbOutOfRange => "ERR DB index is out of range".into(),
            Error::SlotMoved => "TRYAGAIN The slot has moved to another node".into(),
            Error::InvalidSlot => "ERR Invalid slot".into(),
            Error::NoCluster => "ERR This instance has cluster support disabled".into(),
            Error::NotInCluster(what) => {
                format!("ERR {what} is not allowed in cluster mode").into()
            }
            Error::InvalidFirstDb => "ERR invalid first DB index".into(),
            Error::InvalidSecondDb => "ERR invalid second DB index".into(),
            Error::OutOfIntRange => {
                let (min, max) = (i32::MIN, i32::MAX);
                format!("ERR value is out of range, value must between {min} and {max}").into()
            }
            Error::BusyKey => "BUSYKEY Target key name already exists.".into(),
            Error::InvalidTtl => "ERR Invalid TTL value, must be >= 0".into(),
            Error::InvalidIdleTime => "ERR Invalid IDLETIME value, must be >= 0".into(),
            Error::InvalidFrequency => "ERR Invalid FREQ value, must be >= 0 and <= 255".into(),
            Error::WrongPayload => "ERR DUMP payload version or checksum are wrong".into(),
            Error::BadData => "ERR Bad data format".into(),
            Error::NotAString => {
                "ERR the DUMP payload is not of a string; midi holds strings only".into()
            }
            Error::HostsSubcommand if !name.contains('.') => {
                let subcommand = args.get(1).to_ascii_lowercase();
                elsewhere(&[name.as_bytes(), b"|", &subcommand].concat(), HostCommand::OfServer)
            }
            Error::UnknownSubcommand | Error::HostsSubcommand => {
                let hint = format!("'. Try {} HELP.", name.to_uppercase());
                error_about("ERR unknown subcommand '", shown(args.get(1)), &hint)
            }
            Error::SubcommandArity => {
                let subcommand = String::from_utf8_lossy(args.get(1)).to_ascii_lowercase();
                format!("ERR wrong number of arguments for '{name}|{subcommand}' command").into()
            }
            Error::FrequencyNotTracked => {
                "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please \
                 note that when switching between policies at runtime LRU and LFU data will take \
                 some time to adjust."
                    .into()
            }
            Error::IdleTimeNotTracked => "ERR midi does not track the idle time of keys yet".into(),
            Error::TooManyKeys(limit) => {
                format!("ERR too many keys for one atomic command (midi.max-atomic-keys {limit})")
                    .into()
            }
            Error::TransactionTooLarge(limit) => format!(
                "ERR the commands of this transaction log and keep more than allowed \
                 (midi.max-transaction-bytes {limit})"
            )
            .into(),
            Error::PatternTooLong(limit) => {
                format!("ERR pattern exceeds maximum allowed size (midi.max-pattern-bytes {limit})")
                    .into()
            }
            Error::KeyTooLong(limit) => {
                format!("ERR key exceeds maximum allowed size (midi.max-key-bytes {limit})").into()
            }
            Error::ValueTooLong(limit) => {
                format!("ERR string exceeds maximum allowed size (midi.max-value-bytes {limit})")
                    .into()
            }
            Error::TooManyJobs(limit) => format!(
                "BUSY too many long commands are running (midi.max-jobs {limit}). See \
                         MIDI.JOBS."
            )
            .into(),
            Error::TooManyQueued(limit) => {
                format!("BUSY too many commands are waiting (midi.max-queued-commands {limit})")
                    .into()
            }
            Error::NoSuchJob => "ERR no such job".into(),
            Error::JobLeft(id) => {
                format!("ERR job {id} has ended: its client sends no more").into()
            }
            Error::JobCancelled(id) => {
                format!("ERR job {id} was cancelled by MIDI.JOBS CANCEL").into()
            }
            Error::OutOfMemory => "OOM command not allowed when used memory > 'maxmemory'.".into(),
            Error::AofError(0) => "MISCONF Errors writing to the AOF file".into(),
            Error::AofError(errno) => {
                let reason = std::io::Error::from_raw_os_error(errno).to_string();
                let reason = reason.split(" (os error").next().unwrap_or_default();
                format!("MISCONF Errors writing to the AOF file: {reason}").into()
            }
            Error::LogWaits => "TRYAGAIN midi's newest writes are not in the AOF yet, and clients \
                                are paused"
                .into(),
            Error::Unblocked => "UNBLOCKED force unblock from blocking operation, instance state \
                                 changed (master -> replica?)"
                .into(),
            Error::WaitOnReplica => {
                "ERR WAIT cannot be used with replica instances. Please also note that since Redis \
                 4.0 if a replica is configured to be writable (which is not the default) writes \
                 to replicas are just local and are not propagated."
                    .into()
            }
            Error::WaitAofOnReplica => {
                "ERR WAITAOF cannot be used with replica instances. Please also note that writes \
                 to replicas are just local and are not propagated."
                    .into()
            }
            Error::WaitAofIsOff => {
                "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.".into()
            }
            Error::WaitAofUnknown => "ERR WAITAOF on midi's port needs appendfsync always and \
                 no-appendfsync-on-rewrite no: otherwise the server does not tell what is synced"
                .into(),
            Error::WaitAofOfReplicas => {
                "ERR WAITAOF on midi's port cannot tell what replicas have synced: set numreplicas \
                 to 0, and use WAIT for what they have received"
                    .into()
            }
            Error::NotZeroOrOne => "ERR value is out of range, value must between 0 and 1".into(),
            Error::TimeoutNotAnInteger => "ERR timeout is not an integer or out of range".into(),
            Error::TimeoutNegative => "ERR timeout is negative".into(),
            Error::TimeoutOutOfRange => "ERR timeout is out of range".into(),
            Error::Loading => "LOADING Redis is loading the dataset in memory".into(),
            Error::InChild => "ERR midi's keys are not available in a forked child".into(),
            Error::MasterDown => {
                "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."
                    .into()
            }
            Error::ReadOnly => "READONLY You can't write against a read only replica.".into(),
            Error::DiskError => {
                "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to \
                 persist to disk. Commands that may modify the data set are disabled, because this \
                 instance is configured to report errors during writes if RDB snapshotting fails \
                 (stop-writes-on-bgsave-error option). Please check the Redis logs for details \
                 about the RDB error."
                    .into()
            }
            Error::FewReplicas => "NOREPLICAS Not enough good replicas to write.".into(),
            Error::Busy => {
                "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN \
                 NOSAVE."
                    .into()
            }
            Error::NotImporting => "ERR Server is not in import mode".into(),
            Error::NotForClients => {
                format!("NOPERM this user has no permissions to run the '{name}' command").into()
            }
            Error::NoPermission => "NOPERM this user has no permissions to access one of the keys \
                                    used as arguments"
                .into(),
            Error::HostRefused => "ERR the host refused a write; its log has the reason".into(),
            Error::Internal => "ERR internal error in midi; see the server's log".into(),
            Error::ReplyTooLarge => "ERR reply too large for this thread".into(),
            Error::IncrementOverflow => "ERR increment or decrement would overflow".into(),
            Error::DecrementOverflow => "ERR decrement would overflow".into(),
            Error::NotAFloat => "ERR value is not a valid float".into(),
            Error::NotFinite => "ERR increment would produce NaN or Infinity".into(),
            Error::IncrexNotAnInteger(which) => {
                format!("ERR {} is not an integer or out of range", which.name()).into()
            }
            Error::IncrexNotAFloat(which) => {
                format!("ERR {} is not a valid float", which.name()).into()
            }
            Error::InfiniteIncrement => "ERR BYFLOAT increment cannot be Infinity".into(),
            Error::InfiniteValue => "ERR value cannot be Infinity".into(),
            Error::BoundsCross => "ERR LBOUND can't be greater than UBOUND".into(),
            Error::EnxWithoutExpiry => "ERR ENX flag requires an expiration".into(),
            Error::AppliedOverflow => "ERR applied increment would overflow".into(),
            Error::OffsetOutOfRange => "ERR offset is out of range".into(),
            Error::BitOffsetOutOfRange => "ERR bit offset is not an integer or out of range".into(),
            Error::NotABit => "ERR bit is not an integer or out of range".into(),
            Error::NoBitToFind => "ERR The bit argument must be 1 or 0.".into(),
            Error::BitopOfOne => {
                let name = String::from_utf8_lossy(args.get(1)).to_uppercase();
                format!("ERR BITOP {name} must be called with at least two source keys.").into()
            }
            Error::BitopNotOfSeveral => {
                "ERR BITOP NOT must be called with a single source key.".into()
            }
            Error::InvalidField => "ERR Invalid bitfield type. Use something like i16 u8. Note \
                                    that u64 is not supported but i64 is."
                .into(),
            Error::InvalidOverflow => "ERR Invalid OVERFLOW type specified".into(),
            Error::FieldsReadOnly => "ERR BITFIELD_RO only supports the GET subcommand".into(),
            Error::InvalidPairCount => "ERR invalid numkeys value".into(),
            Error::MissingPairs => "ERR wrong number of key-value pairs".into(),
            Error::InvalidComparison => {
                "ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE".into()
            }
            Error::LcsLenAndIdx => "ERR If you want both the length and indexes, please just use \
                                    IDX."
                .into(),
            Error::LcsTooLarge => {
                "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len"
                    .into()
            }
            Error::WrongType => {
                "WRONGTYPE Operation against a key holding the wrong kind of value".into()
            }
            Error::LcsWrongType => "ERR The specified keys must contain string values".into(),
            Error::LongWork => "ERR this is long work".into(),
            Error::InvalidDigest => "ERR must be exactly 16 hexadecimal characters".into(),
        }
    }
}
