//! Meta commands: a command of two letters, a key, and flags.

use super::{BAD_FORMAT, ERROR, LINE_END, MemcachedRequest, ParsedRequest, RequestLine};
use crate::command::{MetaCommand, MetaFlags, base64, signed_32};
use crate::limits::MEMCACHED_KEY_BYTES;

/// A meta command but `mn` and `me`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaRequest<'i> {
    /// Which one.
    pub command: MetaCommand,
    /// The key.
    pub key: &'i [u8],
    /// Whether the key is in base64.
    pub is_base64: bool,
    /// The flags, which are well-formed.
    pub flags: MetaFlags<'i>,
    /// The data of `ms`.
    pub value: &'i [u8],
}

/// `me`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DebugRequest<'i> {
    /// The key.
    pub key: &'i [u8],
    /// Whether the key is in base64.
    pub is_base64: bool,
    /// The flags.
    pub flags: &'i [u8],
}

impl<'i> MemcachedRequest<'i> {
    /// Its key, if that is in base64.
    pub fn base64_key(&self) -> Option<&'i [u8]> {
        match *self {
            MemcachedRequest::Meta(MetaRequest { key, is_base64: true, .. })
            | MemcachedRequest::Debug(DebugRequest { key, is_base64: true, .. })
            | MemcachedRequest::TooLarge(Some((key, true)), _) => Some(key),
            _ => None,
        }
    }

    /// The same about this key, which is not in base64.
    pub fn about<'k>(self, key: &'k [u8]) -> MemcachedRequest<'k>
    where
        'i: 'k,
    {
        let is_base64 = false;
        match self {
            MemcachedRequest::Meta(meta) => {
                MemcachedRequest::Meta(MetaRequest { key, is_base64, ..meta })
            }
            MemcachedRequest::Debug(DebugRequest { flags, .. }) => {
                MemcachedRequest::Debug(DebugRequest { key, is_base64, flags })
            }
            MemcachedRequest::TooLarge(Some(_), skipped) => {
                MemcachedRequest::TooLarge(Some((key, false)), skipped)
            }
            request => request,
        }
    }
}

impl<'i> RequestLine<'_, 'i> {
    /// `mg`, `md`, `ma`.
    pub(super) fn meta(&self, command: MetaCommand) -> ParsedRequest<'i> {
        let &[_, key, ..] = self.words else { return self.plain(MemcachedRequest::Answer(ERROR)) };
        let request = self.checked(command, key, self.behind(key)).map(MemcachedRequest::Meta);
        self.plain(request.unwrap_or_else(MemcachedRequest::Answer))
    }

    /// `ms`.
    pub(super) fn meta_set(&self) -> ParsedRequest<'i> {
        let answer = |text| self.plain(MemcachedRequest::Answer(text));
        let &[_, key, ..] = self.words else { return answer(ERROR) };
        let Some(&length) = self.words.get(2) else { return answer(BAD_FORMAT) };
        let most = i32::MAX - LINE_END as i32;
        let Some(len) = signed_32(length).filter(|length| (0..=most).contains(length)) else {
            return answer(BAD_FORMAT);
        };
        let len = len as usize;
        let meta = match self.checked(MetaCommand::Set, key, self.behind(length)) {
            Ok(meta) => meta,
            Err(text) => return self.plain(MemcachedRequest::Refused(text, len + LINE_END)),
        };
        if len > self.most {
            let key = Some((key, meta.is_base64));
            return self.plain(MemcachedRequest::TooLarge(key, len + LINE_END));
        }
        let (value, end) = match self.data(len) {
            Ok(data) => data,
            Err(missing) => return ParsedRequest::Incomplete(missing),
        };
        let request = match value {
            Some(value) => MemcachedRequest::Meta(MetaRequest { value, ..meta }),
            None => MemcachedRequest::Answer(super::BAD_DATA),
        };
        ParsedRequest::Request(request, end, false)
    }

    /// `me`.
    pub(super) fn debug(&self) -> ParsedRequest<'i> {
        let answer = |text| self.plain(MemcachedRequest::Answer(text));
        let Some(&key) = self.words.get(1).filter(|key| key.len() <= MEMCACHED_KEY_BYTES) else {
            return answer(BAD_FORMAT);
        };
        let is_base64 = self.words.get(2) == Some(&&b"b"[..]);
        if is_base64 && base64::decode(key).is_none() {
            return answer(BAD_FORMAT);
        }
        let flags = self.behind(key);
        self.plain(MemcachedRequest::Debug(DebugRequest { key, is_base64, flags }))
    }

    fn checked(
        &self,
        command: MetaCommand,
        key: &'i [u8],
        flags: &'i [u8],
    ) -> Result<MetaRequest<'i>, &'static str> {
        if key.len() > MEMCACHED_KEY_BYTES {
            return Err(BAD_FORMAT);
        }
        let flags = MetaFlags::read(command, key, flags)?;
        Ok(MetaRequest { command, key, is_base64: flags.has(b'b'), flags, value: b"" })
    }
}
