//! Keeps the library where it is until the VM ends. Rule: its threads, and the destructors of what
//! outlives its Erlang module, run its code, so that it must never be unmapped.

use std::ffi::c_void;

/// Makes the VM's `dlclose` leave the library mapped. False when the system does not know it.
pub fn library() -> bool {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let here = library as *const c_void;
    // SAFETY: any address may be asked for, and the struct is ours. All zeros are a valid one.
    let info = unsafe { (libc::dladdr(here, info.as_mut_ptr()) != 0).then(|| info.assume_init()) };
    let Some(info) = info.filter(|info| !info.dli_fname.is_null()) else { return false };
    let flags = libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
    // SAFETY: the name is the loader's own, of a library that is loaded: nothing of it runs anew.
    !unsafe { libc::dlopen(info.dli_fname, flags) }.is_null()
}
