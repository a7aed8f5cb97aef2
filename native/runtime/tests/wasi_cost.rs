//! What making and dropping the WASI context of one request costs, against wasmtime-wasi alone.
//! `cargo test --release --test wasi_cost -- --ignored --nocapture`

use std::time::{Duration, Instant};
use wasmtime_beam::options::{Clocks, Dir, Output, Stdin, WasiOptions};
use wasmtime_beam::stream::Ends;
use wasmtime_beam::wasi::{Wasi, WasiTemplate};
use wasmtime_wasi::{FsPerms, WasiCtxBuilder};

const ROUNDS: usize = 20_000;

fn request() -> WasiOptions {
    let dir =
        |guest: &str, host: &str| Dir { guest: guest.into(), host: host.into(), write: false };
    WasiOptions {
        args: vec!["python".into(), "-S".into()],
        env: (0..5).map(|i| (format!("NAME_{i}"), format!("value {i}"))).collect(),
        dirs: vec![dir("/", "/"), dir("/lib", "/usr/lib"), dir("/tmp", "/tmp")],
        stdin: Stdin::None,
        stdout: Output::Capture,
        stderr: Output::Capture,
        output_limit: 16 << 20,
        clocks: Clocks::All,
    }
}

fn stock(options: &WasiOptions) {
    let mut builder = WasiCtxBuilder::new();
    builder.allow_blocking_current_thread(true).args(&options.args);
    for dir in &options.dirs {
        builder.preopened_dir(&dir.host, &dir.guest, FsPerms::ReadOnly).unwrap();
    }
    drop(builder.build_p1());
}

fn median(name: &str, mut once: impl FnMut()) -> Duration {
    let mut times: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            once();
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    println!("{name:40} p50 {:?} p99 {:?}", times[ROUNDS / 2], times[ROUNDS * 99 / 100]);
    times[ROUNDS / 2]
}

/// A context from a template is cheaper than one that opens its directories.
#[test]
#[ignore = "a measurement"]
fn a_template_beats_opening_directories() {
    let options = request();
    let template = WasiTemplate::new(&options).unwrap();
    median("empty builder", || drop(WasiCtxBuilder::new().build_p1()));
    let bare = WasiTemplate::new(&WasiOptions { dirs: vec![], ..request() }).unwrap();
    median("template without dirs", || drop(bare.instantiate(&Ends::none()).unwrap()));
    median("one metadata", || assert!(std::fs::metadata("/usr/lib").unwrap().is_dir()));
    let stock = median("wasmtime-wasi, directories opened", || stock(&options));
    let new = median("Wasi::new", || drop(Wasi::new(&options).unwrap()));
    let made = median("template", || drop(template.instantiate(&Ends::none()).unwrap()));
    assert!(made < stock && made < new, "{made:?}, {stock:?}, {new:?}");
}
