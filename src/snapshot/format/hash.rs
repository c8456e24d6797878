//! The fields of a hash.

use super::super::error::Fault;
use super::{Body, put_bytes, put_varint};
use crate::store::{FieldRef, UnixMs};

/// Adds a field to those of a hash.
pub(in crate::snapshot) fn put_field_of_hash(out: &mut Vec<u8>, field: FieldRef<'_>) {
    put_varint(out, field.name.len() as u64 * 2 + u64::from(field.expire_at.is_some()));
    out.extend_from_slice(field.name);
    if let Some(at) = field.expire_at {
        out.extend_from_slice(&at.to_le_bytes());
    }
    put_bytes(out, field.value);
}

/// The fields of a hash.
pub(in crate::snapshot) fn fields_of_hash(
    value: &[u8],
) -> impl Iterator<Item = Result<FieldRef<'_>, Fault>> {
    let mut rest = Body(value);
    std::iter::from_fn(move || (!rest.is_empty()).then(|| rest.field_of_hash()))
}

impl<'a> Body<'a> {
    fn field_of_hash(&mut self) -> Result<FieldRef<'a>, Fault> {
        let head = self.varint()?;
        let len = usize::try_from(head / 2).map_err(|_| Fault::Cut)?;
        let (name, mut rest) = self.0.split_at_checked(len).ok_or(Fault::Cut)?;
        let mut expire_at = None;
        if head % 2 == 1 {
            let (at, behind) = rest.split_first_chunk().ok_or(Fault::Cut)?;
            (expire_at, rest) = (Some(UnixMs::from_le_bytes(*at)), behind);
        }
        self.0 = rest;
        Ok(FieldRef { name, value: self.bytes()?, expire_at })
    }
}
