//! Promises about the code, the pages and other people's programs: the layout of the sources, the
//! commands' pages, clients in other languages, Redis's own tests, `make run`.

use midi_test_common as common;

mod docs;
mod docs_pages;
mod exporter;
mod imports;
mod layout;
mod methods;
mod programs;
mod redis_suite;
mod run;
