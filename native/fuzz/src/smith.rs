//! wasm-smith, which is in a library of its own: see `smith/src/lib.rs`.

use std::ffi::{CString, c_void};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::OnceLock;

/// What random modules may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    Any = 0,
    /// What pre-initialization carries.
    Carried = 1,
}

type Take = unsafe extern "C" fn(*mut c_void, *const u8, usize);
type Make = unsafe extern "C" fn(*const u8, usize, u32, Take, *mut c_void);

/// A valid module that ends by itself, made of these bytes.
pub fn module(dna: &[u8], sort: Sort) -> Option<Vec<u8>> {
    unsafe extern "C" fn take(into: *mut c_void, bytes: *const u8, len: usize) {
        // SAFETY: `into` is what `module` handed over, and the library hands over its bytes.
        unsafe {
            let into = &mut *into.cast::<Option<Vec<u8>>>();
            *into = Some(std::slice::from_raw_parts(bytes, len).to_vec());
        }
    }
    let mut wasm: Option<Vec<u8>> = None;
    // SAFETY: as the library asks for.
    unsafe { make()(dna.as_ptr(), dna.len(), sort as u32, take, (&raw mut wasm).cast()) };
    wasm
}

fn make() -> Make {
    static MAKE: OnceLock<Make> = OnceLock::new();
    *MAKE.get_or_init(|| {
        let path = path();
        let name = CString::new(path.clone().into_os_string().into_vec()).expect("a path");
        // SAFETY: the library is ours, has no initializers but Rust's, and is never closed.
        let symbol = unsafe {
            let library = libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
            assert!(!library.is_null(), "build wasmtime_smith first: no {}", path.display());
            libc::dlsym(library, c"smith_module".as_ptr())
        };
        assert!(!symbol.is_null(), "{} is another library", path.display());
        // SAFETY: the type is that of `smith_module`.
        unsafe { std::mem::transmute::<*mut c_void, Make>(symbol) }
    })
}

/// Cargo puts it beside our binaries, and above our tests.
fn path() -> PathBuf {
    let name =
        format!("{}wasmtime_smith{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let here = std::env::current_exe().expect("our own path");
    let folders = here.ancestors().skip(1).take(2).map(|folder| folder.join(&name));
    folders.clone().find(|path| path.exists()).or(folders.last()).unwrap_or_default()
}
