//! Arguments and environment, and what is refused in them.

use crate::guest::{Guest, SUCCESS, i, nothing};
use wasmtime_beam::options::WasiOptions;
use wasmtime_beam::wasi::WasiTemplate;
use wasmtime_beam::{Class, Kind};

/// The strings that a pair of imports lists, without the NULs at their ends.
fn list(guest: &mut Guest, sizes_get: &str, get: &str) -> Vec<String> {
    let (count, size) = (guest.room(4), guest.room(4));
    assert_eq!(guest.call(sizes_get, &[i(count), i(size)]), SUCCESS);
    let (count, size) = (guest.get_u32(count) as usize, guest.get_u32(size) as usize);
    let (pointers, bytes) = (guest.room(4 * count), guest.room(size));
    assert_eq!(guest.call(get, &[i(pointers), i(bytes)]), SUCCESS);
    let text = String::from_utf8(guest.get(bytes, size)).unwrap();
    text.split_terminator('\0').map(String::from).collect()
}

/// The guest sees the arguments and variables of the options, in their order.
#[test]
fn a_guest_sees_arguments_and_variables() {
    let env = vec![("B".into(), "2=2".into()), ("A".into(), String::new())];
    let options =
        WasiOptions { args: vec!["prog".into(), "".into(), "ä".into()], env, ..nothing() };
    let mut guest = Guest::new(&options);
    assert_eq!(list(&mut guest, "args_sizes_get", "args_get"), ["prog", "", "ä"]);
    assert_eq!(list(&mut guest, "environ_sizes_get", "environ_get"), ["B=2=2", "A="]);
}

/// Nothing of this process is given to a guest by itself.
#[test]
fn a_guest_inherits_nothing() {
    let mut guest = Guest::new(&nothing());
    assert!(list(&mut guest, "environ_sizes_get", "environ_get").is_empty());
    assert!(list(&mut guest, "args_sizes_get", "args_get").is_empty());
}

/// A NUL would cut a string short for the guest; a name with `=` would be another name.
#[test]
fn impossible_strings_are_refused() {
    let variable = |name: &str, value: &str| WasiOptions {
        env: vec![("OK".into(), "x".into()), (name.into(), value.into())],
        ..nothing()
    };
    let cases = [
        ("args", WasiOptions { args: vec!["a".into(), "b\0c".into()], ..nothing() }),
        ("env", variable("A\0", "b")),
        ("env", variable("A", "\0")),
        ("env", variable("", "b")),
        ("env", variable("A=B", "c")),
    ];
    for (key, options) in cases {
        let error = WasiTemplate::new(&options).err().unwrap();
        assert_eq!(
            (error.class, error.kind, error.key),
            (Class::Instantiate, Kind::Badarg, Some(key))
        );
        assert!(error.message.starts_with(key), "{error}");
    }
}
