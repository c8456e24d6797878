//! MIDI.IMPORT and MIDI.EXPORT: keys from the host into midi and back, copied or moved.

mod export;
mod import;
mod job;
mod moves;
mod native;

pub use export::export;
pub use import::import;
pub use job::{Asker, Wait};
