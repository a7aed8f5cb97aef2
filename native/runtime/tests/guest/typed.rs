//! Functions of every type that is called in a way of its own, and of some that are not.

use std::fmt::Write;

use wasmtime_beam::Kind;
use wasmtime_beam::value::Value;

use crate::support::{Recorder, call, done, guest, submit};

const PARAMS: [&[&str]; 11] = [
    &[],
    &["i32"],
    &["i64"],
    &["i32", "i32"],
    &["i32", "i64"],
    &["i64", "i32"],
    &["i64", "i64"],
    &["i32", "i32", "i32"],
    &["i32", "i32", "i32", "i32"],
    &["i64", "i64", "i64"],
    &["i32", "i32", "i32", "i32", "i32"],
];

const RESULTS: [&[&str]; 4] = [&[], &["i32"], &["i64"], &["i64", "i32"]];

/// Arguments whose bits are all of use.
fn args(params: &[&str]) -> Vec<Value> {
    let arg = |(at, ty): (usize, &&str)| match *ty {
        "i32" => Value::I32(i32::MIN + at as i32),
        _ => Value::I64(i64::MIN + at as i64),
    };
    params.iter().enumerate().map(arg).collect()
}

/// What the functions make of their arguments.
fn mixed(args: &[Value]) -> i64 {
    args.iter().fold(7, |sum, arg| {
        let arg = match arg {
            Value::I32(arg) => i64::from(*arg),
            Value::I64(arg) => *arg,
            other => panic!("{other:?}"),
        };
        sum.wrapping_mul(31).wrapping_add(arg)
    })
}

fn mix(wat: &mut String, params: &[&str]) {
    wat.push_str("(local.set $sum (i64.const 7))");
    for (at, ty) in params.iter().enumerate() {
        let get = if *ty == "i32" { "i64.extend_i32_s" } else { "i64.or (i64.const 0)" };
        write!(
            wat,
            "(local.set $sum (i64.add (i64.mul (local.get $sum) (i64.const 31)) ({get} (local.get {at}))))"
        )
        .unwrap();
    }
}

#[test]
fn every_type_is_called() {
    let mut wat = String::from("(module (global (export \"seen\") (mut i64) (i64.const 0))");
    for (p, params) in PARAMS.iter().enumerate() {
        for (r, results) in RESULTS.iter().enumerate() {
            let (takes, gives) = (params.join(" "), results.join(" "));
            write!(
                wat,
                "(func (export \"{p}-{r}\") (param {takes}) (result {gives}) (local $sum i64)"
            )
            .unwrap();
            mix(&mut wat, params);
            wat.push_str("(global.set 0 (local.get $sum))");
            for ty in *results {
                wat.push_str("(local.get $sum)");
                wat.push_str(if *ty == "i32" { "(i32.wrap_i64)" } else { "" });
            }
            wat.push(')');
            write!(
                wat,
                "(func (export \"trap {p}-{r}\") (param {takes}) (result {gives}) unreachable)"
            )
            .unwrap();
        }
    }
    wat.push(')');
    let (guest, client) = (guest(&wat), Recorder::new());
    for (p, params) in PARAMS.iter().enumerate() {
        for (r, results) in RESULTS.iter().enumerate() {
            let (args, name) = (args(params), format!("{p}-{r}"));
            let sum = mixed(&args);
            let result = |ty: &&str| match *ty {
                "i32" => Value::I32(sum as i32),
                _ => Value::I64(sum),
            };
            submit(&guest, &client, call(&name, &args));
            assert_eq!(done(&guest), Ok(results.iter().map(result).collect()), "{name}");
            let seen = guest.access(|mut view| view.global_get("seen")).unwrap();
            assert_eq!(seen, Value::I64(sum), "{name}");
            submit(&guest, &client, call(&format!("trap {name}"), &args));
            assert_eq!(done(&guest).unwrap_err().kind, Kind::Unreachable, "{name}");
        }
    }
}

/// Values of other types than the function's are an error, and nothing is called.
#[test]
fn values_of_other_types_are_refused() {
    let wat = r#"(module (func (export "one") (param i32) (result i32) unreachable))"#;
    let (guest, client) = (guest(wat), Recorder::new());
    for args in [&[][..], &[Value::I64(1)], &[Value::I32(1), Value::I32(2)], &[Value::Null]] {
        submit(&guest, &client, call("one", args));
        assert_ne!(done(&guest).unwrap_err().kind, Kind::Unreachable, "{args:?}");
    }
}
