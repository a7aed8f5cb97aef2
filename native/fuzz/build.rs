//! Links libFuzzer into the binaries; LIBFUZZER is the path of its static library.

fn main() {
    println!("cargo:rerun-if-env-changed=LIBFUZZER");
    if let Ok(library) = std::env::var("LIBFUZZER") {
        println!("cargo:rustc-link-arg-bins={library}");
        println!("cargo:rustc-link-arg-bins=-lstdc++");
    }
}
