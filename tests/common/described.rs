//! Parts of what COMMAND replies, to be compared.

use std::collections::BTreeSet;

use super::Value;

/// The texts of a list, in no order.
pub fn texts(list: &Value) -> BTreeSet<String> {
    list.clone().array().iter().map(Value::text).collect()
}

/// Key specs without the parts that depend on a command's options.
pub fn key_specs(list: &Value) -> Vec<(BTreeSet<String>, Value, Value)> {
    let specs = list.clone().array().into_iter().map(Value::map);
    specs
        .map(|spec| {
            let mut flags = texts(&spec["flags"]);
            flags.remove("variable_flags");
            (flags, spec["begin_search"].clone(), spec["find_keys"].clone())
        })
        .collect()
}
