//! A guest whose exports call the WASI imports of the same name, driven by hand: no runtime of tokio
//! is entered, as runners of preview 1 guests need not.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};
use wasmtime::{Engine, Instance, Linker, Memory, Module, Store, Val};
use wasmtime_beam::options::{Clocks, Dir, Output, Stdin, WasiOptions};
use wasmtime_beam::stream::Ends;
use wasmtime_beam::wasi::{Wasi, WasiTemplate, add_to_linker, add_unstable_to_linker};

pub const SUCCESS: i32 = 0;

/// Every import under test with its parameters; all answer an errno, but for `proc_exit`.
const IMPORTS: &[(&str, &str)] = &[
    ("args_get", "i32 i32"),
    ("args_sizes_get", "i32 i32"),
    ("environ_get", "i32 i32"),
    ("environ_sizes_get", "i32 i32"),
    ("clock_res_get", "i32 i32"),
    ("clock_time_get", "i32 i64 i32"),
    ("fd_allocate", "i32 i64 i64"),
    ("fd_close", "i32"),
    ("fd_fdstat_set_flags", "i32 i32"),
    ("fd_fdstat_set_rights", "i32 i64 i64"),
    ("fd_filestat_set_size", "i32 i64"),
    ("fd_filestat_set_times", "i32 i64 i64 i32"),
    ("fd_prestat_get", "i32 i32"),
    ("fd_prestat_dir_name", "i32 i32 i32"),
    ("fd_pwrite", "i32 i32 i32 i64 i32"),
    ("fd_read", "i32 i32 i32 i32"),
    ("fd_readdir", "i32 i32 i32 i64 i32"),
    ("fd_renumber", "i32 i32"),
    ("fd_write", "i32 i32 i32 i32"),
    ("path_create_directory", "i32 i32 i32"),
    ("path_filestat_set_times", "i32 i32 i32 i32 i64 i64 i32"),
    ("path_link", "i32 i32 i32 i32 i32 i32 i32"),
    ("path_open", "i32 i32 i32 i32 i32 i64 i64 i32 i32"),
    ("path_remove_directory", "i32 i32 i32"),
    ("path_rename", "i32 i32 i32 i32 i32 i32"),
    ("path_symlink", "i32 i32 i32 i32 i32"),
    ("path_unlink_file", "i32 i32 i32"),
    ("poll_oneoff", "i32 i32 i32 i32"),
    ("random_get", "i32 i32"),
];

fn wat(module: &str) -> String {
    let imports = IMPORTS.iter().map(|(name, parameters)| {
        format!("(import \"{module}\" \"{name}\" (func ${name} (param {parameters}) (result i32)))")
    });
    let exports = IMPORTS.iter().map(|(name, parameters)| {
        let count = parameters.split(' ').count();
        let gets: String = (0..count).map(|index| format!("(local.get {index})")).collect();
        format!(
            "(func (export \"{name}\") (param {parameters}) (result i32) (call ${name} {gets}))"
        )
    });
    let (imports, exports): (String, String) = (imports.collect(), exports.collect());
    format!(
        "(module {imports} (import \"{module}\" \"proc_exit\" (func $proc_exit (param i32)))
           (memory (export \"memory\") 2048) {exports}
           (func (export \"proc_exit\") (param i32) (call $proc_exit (local.get 0))))"
    )
}

fn engine() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(Engine::default)
}

fn module(name: &str) -> Module {
    static PREVIEW1: OnceLock<Module> = OnceLock::new();
    static UNSTABLE: OnceLock<Module> = OnceLock::new();
    let cell = if name == "wasi_unstable" { &UNSTABLE } else { &PREVIEW1 };
    let compile = || Module::new(engine(), wat::parse_str(wat(name)).unwrap()).unwrap();
    cell.get_or_init(compile).clone()
}

/// Options that grant nothing.
pub fn nothing() -> WasiOptions {
    WasiOptions {
        args: vec![],
        env: vec![],
        dirs: vec![],
        stdin: Stdin::None,
        stdout: Output::None,
        stderr: Output::None,
        output_limit: 1 << 20,
        clocks: Clocks::All,
    }
}

/// A granted directory.
pub fn dir(guest: &str, host: &Path, write: bool) -> Dir {
    Dir { guest: guest.into(), host: host.into(), write }
}

pub struct Guest {
    pub store: Store<Wasi>,
    instance: Instance,
    memory: Memory,
    top: u32,
}

impl Guest {
    pub fn new(options: &WasiOptions) -> Self {
        Guest::with(Wasi::new(options).unwrap(), options.clocks)
    }

    pub fn from_template(template: &WasiTemplate) -> Self {
        Guest::with(template.instantiate(&Ends::none()).unwrap(), Clocks::All)
    }

    pub fn unstable(options: &WasiOptions) -> Self {
        let mut linker = Linker::new(engine());
        add_unstable_to_linker(&mut linker, options.clocks, |wasi| wasi).unwrap();
        Guest::link(Wasi::new(options).unwrap(), &linker, "wasi_unstable")
    }

    pub fn with(wasi: Wasi, clocks: Clocks) -> Self {
        let mut linker = Linker::new(engine());
        add_to_linker(&mut linker, clocks, |wasi| wasi).unwrap();
        Guest::link(wasi, &linker, "wasi_snapshot_preview1")
    }

    fn link(wasi: Wasi, linker: &Linker<Wasi>, name: &str) -> Self {
        let mut store = Store::new(engine(), wasi);
        let instance = block_on(linker.instantiate_async(&mut store, &module(name))).unwrap();
        let memory = instance.get_memory(&mut store, "memory").unwrap();
        Guest { store, instance, memory, top: 1024 }
    }

    /// Calls an import; its errno.
    pub fn call(&mut self, name: &str, arguments: &[Val]) -> i32 {
        self.try_call(name, arguments).unwrap_or_else(|error| panic!("{name}: {error:?}"))
    }

    pub fn try_call(&mut self, name: &str, arguments: &[Val]) -> wasmtime::Result<i32> {
        block_on(self.start(name, arguments))
    }

    /// The call as a future: its errno, or 0 for what answers nothing.
    pub fn start(
        &mut self,
        name: &str,
        arguments: &[Val],
    ) -> impl Future<Output = wasmtime::Result<i32>> {
        let func = self.instance.get_func(&mut self.store, name).unwrap();
        let arguments = arguments.to_vec();
        let mut results = vec![Val::I32(0); func.ty(&self.store).results().len()];
        let store = &mut self.store;
        async move {
            func.call_async(store, &arguments, &mut results).await?;
            Ok(results.first().map_or(0, |result| result.unwrap_i32()))
        }
    }

    /// Puts bytes into guest memory, eight-byte aligned; their address.
    pub fn put(&mut self, bytes: &[u8]) -> i32 {
        let place = self.room(bytes.len());
        self.memory.write(&mut self.store, place as usize, bytes).unwrap();
        place
    }

    /// Room in guest memory that nothing else uses.
    pub fn room(&mut self, size: usize) -> i32 {
        let place = self.top.next_multiple_of(8);
        self.top = place + size as u32;
        place as i32
    }

    pub fn get(&self, place: i32, size: usize) -> Vec<u8> {
        self.memory.data(&self.store)[place as u32 as usize..][..size].to_vec()
    }

    pub fn get_u32(&self, place: i32) -> u32 {
        u32::from_le_bytes(self.get(place, 4).try_into().unwrap())
    }

    pub fn get_u64(&self, place: i32) -> u64 {
        u64::from_le_bytes(self.get(place, 8).try_into().unwrap())
    }

    /// Address and length of a path.
    pub fn path(&mut self, path: &str) -> [Val; 2] {
        [i(self.put(path.as_bytes())), i(path.len() as i32)]
    }

    /// One buffer of an I/O call: the address of its descriptor.
    pub fn iovec(&mut self, place: i32, size: usize) -> i32 {
        let bytes = [(place as u32).to_le_bytes(), (size as u32).to_le_bytes()].concat();
        self.put(&bytes)
    }

    /// Writes in one call; the errno.
    pub fn write(&mut self, fd: i32, bytes: &[u8]) -> i32 {
        let place = self.put(bytes);
        let iovec = self.iovec(place, bytes.len());
        let written = self.room(4);
        self.call("fd_write", &[i(fd), i(iovec), i(1), i(written)])
    }

    /// Reads in one call, at most `size` bytes.
    pub fn read(&mut self, fd: i32, size: usize) -> Result<Vec<u8>, i32> {
        let place = self.room(size);
        let iovec = self.iovec(place, size);
        let read = self.room(4);
        match self.call("fd_read", &[i(fd), i(iovec), i(1), i(read)]) {
            SUCCESS => Ok(self.get(place, self.get_u32(read) as usize)),
            errno => Err(errno),
        }
    }

    /// Opens a path below a preopen with these flags and rights.
    pub fn open(&mut self, dir: i32, path: &str, oflags: i32, rights: i64) -> Result<i32, i32> {
        let [place, size] = self.path(path);
        let out = self.room(4);
        let arguments = [
            i(dir),
            i(1),
            place,
            size,
            i(oflags),
            Val::I64(rights),
            Val::I64(rights),
            i(0),
            i(out),
        ];
        match self.call("path_open", &arguments) {
            SUCCESS => Ok(self.get_u32(out) as i32),
            errno => Err(errno),
        }
    }
}

pub fn i(value: i32) -> Val {
    Val::I32(value)
}

pub fn l(value: u64) -> Val {
    Val::I64(value as i64)
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls on this thread until the future is ready.
pub fn block_on<F: Future>(future: F) -> F::Output {
    poll_for(future, Duration::from_secs(60)).expect("not ready after a minute")
}

/// Polls on this thread for this long; none when the future was not ready, and it is dropped.
pub fn poll_for<F: Future>(future: F, limit: Duration) -> Option<F::Output> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    let deadline = Instant::now() + limit;
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
        match deadline.checked_duration_since(Instant::now()) {
            Some(left) => std::thread::park_timeout(left),
            None => return None,
        }
    }
}

/// A directory of its own for one test, removed with it.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("wasmtime-beam-wasi-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Scratch(path)
    }

    pub fn file(&self, name: &str, contents: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, contents).unwrap();
        path
    }

    pub fn dir(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir(&path).unwrap();
        path
    }

    pub fn fifo(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        let status = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(status.success());
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
