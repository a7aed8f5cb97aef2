//! What every request does: WASI with the same two folders, the host's functions, one `handle`, and
//! the check of its result. Rule: all rows do the same work; only their instances differ.

use wasmtime::{Caller, Config, Engine, Extern, Instance, Linker, Memory, Result, Store};
use wasmtime::{bail, format_err};
use wasmtime_wasi::p1::{self, WasiP1Ctx};
use wasmtime_wasi::{FsPerms, WasiCtxBuilder};

use crate::arguments::Arguments;

/// An epoch that never comes: the checks cost their time, nothing is interrupted.
pub const NEVER: u64 = 1 << 40;

/// Bytes of stack a guest may use; the binding gives the same.
const WASM_STACK: usize = 1 << 20;

/// How a request's file calls are made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Files {
    /// On the calling thread, as the binding makes them.
    Direct,
    /// Through a pool of threads, which is WASI's default.
    Default,
}

/// What requests need, made once.
pub struct Site {
    root: std::path::PathBuf,
    lib: std::path::PathBuf,
    before: Vec<u8>,
    after: Vec<u8>,
    files: Files,
    number: u64,
}

/// A request's state.
pub struct State {
    wasi: WasiP1Ctx,
    number: u64,
    reply: Vec<u8>,
    result: Vec<u8>,
}

impl Site {
    pub fn new(arguments: &Arguments, files: Files) -> Self {
        Site {
            root: arguments.root.clone(),
            lib: arguments.lib.clone(),
            before: arguments.before.clone().into_bytes(),
            after: arguments.after.clone().into_bytes(),
            files,
            number: 0,
        }
    }

    /// A store for the next request.
    pub fn store(&mut self, engine: &Engine) -> Result<Store<State>> {
        self.number += 1;
        let wasi = self.wasi()?;
        let state = State { wasi, number: self.number, reply: Vec::new(), result: Vec::new() };
        let mut store = Store::new(engine, state);
        store.set_epoch_deadline(NEVER);
        Ok(store)
    }

    fn wasi(&self) -> Result<WasiP1Ctx> {
        let mut builder = WasiCtxBuilder::new();
        // Before the folders, which take it over.
        builder.allow_blocking_current_thread(self.files == Files::Direct);
        builder.preopened_dir(&self.root, "/", FsPerms::ReadOnly)?;
        builder.preopened_dir(&self.lib, "/lib", FsPerms::ReadOnly)?;
        Ok(builder.build_p1())
    }

    /// One more request in an instance that has served some.
    pub fn renew(&mut self, store: &mut Store<State>) {
        self.number += 1;
        store.data_mut().number = self.number;
        store.data_mut().result.clear();
    }

    /// Runs the guest.
    pub fn handle(&self, store: &mut Store<State>, instance: &Instance) -> Result<()> {
        let handle = instance.get_typed_func::<(), i32>(&mut *store, "handle")?;
        match handle.call(store, ())? {
            0 => Ok(()),
            code => bail!("handle answered {code}"),
        }
    }

    /// Checks what the guest answered in the last request.
    pub fn check(&self, result: &[u8]) -> Result<()> {
        let number = self.number.to_string();
        let expected = [&self.before, number.as_bytes(), &self.after].concat();
        if result != expected {
            let (result, expected) =
                (String::from_utf8_lossy(result), String::from_utf8_lossy(&expected));
            bail!("the guest answered {result} instead of {expected}");
        }
        Ok(())
    }
}

impl State {
    /// The guest's answer.
    pub fn take_result(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.result)
    }
}

/// What the configurations of all engines share.
pub fn config() -> Config {
    let mut config = Config::new();
    config.epoch_interruption(true).max_wasm_stack(WASM_STACK);
    config
}

/// WASI and the host's functions.
pub fn linker(engine: &Engine) -> Result<Linker<State>> {
    let mut linker = Linker::new(engine);
    p1::add_to_linker_sync(&mut linker, |state: &mut State| &mut state.wasi)?;
    linker.func_wrap("worker", "result", worker_result)?;
    linker.func_wrap("hornbeam", "call", hornbeam_call)?;
    linker.func_wrap("hornbeam", "take", hornbeam_take)?;
    Ok(linker)
}

fn worker_result(mut caller: Caller<'_, State>, at: u32, length: u32) -> Result<()> {
    caller.data_mut().result = read(&mut caller, at, length)?;
    Ok(())
}

/// The reply is `name:payload#number`.
fn hornbeam_call(
    mut caller: Caller<'_, State>,
    name: u32,
    name_length: u32,
    payload: u32,
    payload_length: u32,
) -> Result<i32> {
    let mut reply = read(&mut caller, name, name_length)?;
    reply.push(b':');
    reply.extend(read(&mut caller, payload, payload_length)?);
    reply.extend(format!("#{}", caller.data().number).bytes());
    let length = i32::try_from(reply.len())?;
    caller.data_mut().reply = reply;
    Ok(length)
}

fn hornbeam_take(mut caller: Caller<'_, State>, at: u32, length: u32) -> Result<i32> {
    let reply = std::mem::take(&mut caller.data_mut().reply);
    if reply.len() != length as usize {
        bail!("the guest takes {length} bytes of a reply of {}", reply.len());
    }
    memory(&mut caller)?.write(&mut caller, at as usize, &reply)?;
    Ok(i32::try_from(length)?)
}

fn read(caller: &mut Caller<'_, State>, at: u32, length: u32) -> Result<Vec<u8>> {
    let memory = memory(caller)?;
    let range = at as usize..(at as usize).saturating_add(length as usize);
    let bytes = memory.data(&caller).get(range);
    Ok(bytes.ok_or_else(|| format_err!("the guest's pointer is out of bounds"))?.to_vec())
}

fn memory(caller: &mut Caller<'_, State>) -> Result<Memory> {
    let memory = caller.get_export("memory").and_then(Extern::into_memory);
    memory.ok_or_else(|| format_err!("the guest exports no memory"))
}
