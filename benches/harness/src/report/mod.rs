//! The output for people: tables in the terminal, docs/benchmarks.md, and the same page as HTML.

mod missed;
mod page;
mod plots;
mod table;

pub use page::{Page, html};
pub use plots::{Plot, plots};
pub use table::terminal;
