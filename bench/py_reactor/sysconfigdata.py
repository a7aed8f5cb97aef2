# Stands for the file that CPython's build writes: sysconfig and zoneinfo can't be imported
# without one. The written one has the folders of the building machine in it.
build_time_vars = {
    "EXT_SUFFIX": ".cpython-311-wasm32-wasi.so",
    "LDVERSION": "3.11",
    "MULTIARCH": "wasm32-wasi",
    "Py_DEBUG": 0,
    "SOABI": "cpython-311-wasm32-wasi",
    "TZPATH": "/usr/share/zoneinfo",
    "VERSION": "3.11",
}
