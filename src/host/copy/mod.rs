//! MIDI.IMPORT and MIDI.EXPORT: string keys from the host into midi and back.

mod export;
mod import;
mod job;

pub use export::export;
pub use import::import;
pub use job::{Asker, Wait};
