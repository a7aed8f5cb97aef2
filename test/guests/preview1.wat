;; All of WASI preview 1, each function under its own name with its raw arguments: what an attacker can say.
(module
  (import "wasi_snapshot_preview1" "args_get"
    (func $args_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_sizes_get"
    (func $args_sizes_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_get"
    (func $environ_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_sizes_get"
    (func $environ_sizes_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "clock_res_get"
    (func $clock_res_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "clock_time_get"
    (func $clock_time_get (param i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_advise"
    (func $fd_advise (param i32 i64 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_allocate"
    (func $fd_allocate (param i32 i64 i64) (result i32)))
  (import "wasi_snapshot_preview1" "fd_close"
    (func $fd_close (param i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_datasync"
    (func $fd_datasync (param i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_fdstat_get"
    (func $fd_fdstat_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_fdstat_set_flags"
    (func $fd_fdstat_set_flags (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_fdstat_set_rights"
    (func $fd_fdstat_set_rights (param i32 i64 i64) (result i32)))
  (import "wasi_snapshot_preview1" "fd_filestat_get"
    (func $fd_filestat_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_filestat_set_size"
    (func $fd_filestat_set_size (param i32 i64) (result i32)))
  (import "wasi_snapshot_preview1" "fd_filestat_set_times"
    (func $fd_filestat_set_times (param i32 i64 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_pread"
    (func $fd_pread (param i32 i32 i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_prestat_get"
    (func $fd_prestat_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_prestat_dir_name"
    (func $fd_prestat_dir_name (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_pwrite"
    (func $fd_pwrite (param i32 i32 i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read"
    (func $fd_read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_readdir"
    (func $fd_readdir (param i32 i32 i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_renumber"
    (func $fd_renumber (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_seek"
    (func $fd_seek (param i32 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_sync"
    (func $fd_sync (param i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_tell"
    (func $fd_tell (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write"
    (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_create_directory"
    (func $path_create_directory (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_filestat_get"
    (func $path_filestat_get (param i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_filestat_set_times"
    (func $path_filestat_set_times (param i32 i32 i32 i32 i64 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_link"
    (func $path_link (param i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open"
    (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_readlink"
    (func $path_readlink (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_remove_directory"
    (func $path_remove_directory (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_rename"
    (func $path_rename (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_symlink"
    (func $path_symlink (param i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_unlink_file"
    (func $path_unlink_file (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff"
    (func $poll_oneoff (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit"
    (func $proc_exit (param i32)))
  (import "wasi_snapshot_preview1" "proc_raise"
    (func $proc_raise (param i32) (result i32)))
  (import "wasi_snapshot_preview1" "random_get"
    (func $random_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "sched_yield"
    (func $sched_yield (result i32)))
  (import "wasi_snapshot_preview1" "sock_accept"
    (func $sock_accept (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "sock_recv"
    (func $sock_recv (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "sock_send"
    (func $sock_send (param i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "sock_shutdown"
    (func $sock_shutdown (param i32 i32) (result i32)))
  (memory (export "memory") 4)
  (func (export "grow") (param i32) (result i32) (memory.grow (local.get 0)))
  (func (export "args_get") (param i32 i32) (result i32)
    (call $args_get (local.get 0) (local.get 1)))
  (func (export "args_sizes_get") (param i32 i32) (result i32)
    (call $args_sizes_get (local.get 0) (local.get 1)))
  (func (export "environ_get") (param i32 i32) (result i32)
    (call $environ_get (local.get 0) (local.get 1)))
  (func (export "environ_sizes_get") (param i32 i32) (result i32)
    (call $environ_sizes_get (local.get 0) (local.get 1)))
  (func (export "clock_res_get") (param i32 i32) (result i32)
    (call $clock_res_get (local.get 0) (local.get 1)))
  (func (export "clock_time_get") (param i32 i64 i32) (result i32)
    (call $clock_time_get (local.get 0) (local.get 1) (local.get 2)))
  (func (export "fd_advise") (param i32 i64 i64 i32) (result i32)
    (call $fd_advise (local.get 0) (local.get 1) (local.get 2) (local.get 3)))
  (func (export "fd_allocate") (param i32 i64 i64) (result i32)
    (call $fd_allocate (local.get 0) (local.get 1) (local.get 2)))
  (func (export "fd_close") (param i32) (result i32)
    (call $fd_close (local.get 0)))
  (func (export "fd_datasync") (param i32) (result i32)
    (call $fd_datasync (local.get 0)))
  (func (export "fd_fdstat_get") (param i32 i32) (result i32)
    (call $fd_fdstat_get (local.get 0) (local.get 1)))
  (func (export "fd_fdstat_set_flags") (param i32 i32) (result i32)
    (call $fd_fdstat_set_flags (local.get 0) (local.get 1)))
  (func (export "fd_fdstat_set_rights") (param i32 i64 i64) (result i32)
    (call $fd_fdstat_set_rights (local.get 0) (local.get 1) (local.get 2)))
  (func (export "fd_filestat_get") (param i32 i32) (result i32)
    (call $fd_filestat_get (local.get 0) (local.get 1)))
  (func (export "fd_filestat_set_size") (param i32 i64) (result i32)
    (call $fd_filestat_set_size (local.get 0) (local.get 1)))
  (func (export "fd_filestat_set_times") (param i32 i64 i64 i32) (result i32)
    (call $fd_filestat_set_times (local.get 0) (local.get 1) (local.get 2) (local.get 3)))
  (func (export "fd_pread") (param i32 i32 i32 i64 i32) (result i32)
    (call $fd_pread (local.get 0) (local.get 1) (local.get 2) (local.get 3) (local.get 4)))
  (func (export "fd_prestat_get") (param i32 i32) (result i32)
    (call $fd_prestat_get (local.get 0) (local.get 1)))
  (func (export "fd_prestat_dir_name") (param i32 i32 i32) (result i32)
    (call $fd_prestat_dir_name (local.get 0) (local.get 1) (local.get 2)))
  (func (export "fd_pwrite") (param i32 i32 i32 i64 i32) (result i32)
    (call $fd_pwrite (local.get 0) (local.get 1) (local.get 2) (local.get 3) (local.get 4)))
  (func (export "fd_read") (param i32 i32 i32 i32) (result i32)
    (call $fd_read (local.get 0) (local.get 1) (local.get 2) (local.get 3)))
  (func (export "fd_readdir") (param i32 i32 i32 i64 i32) (result i32)
    (call $fd_readdir (local.get 0) (local.get 1) (local.get 2) (local.get 3) (local.get 4)))
  (func (export "fd_renumber") (param i32 i32) (result i32)
    (call $fd_renumber (local.get 0) (local.get 1)))
  (func (export "fd_seek") (param i32 i64 i32 i32) (result i32)
    (call $fd_seek (local.get 0) (local.get 1) (local.get 2) (local.get 3)))
  (func (export "fd_sync") (param i32) (result i32)
    (call $fd_sync (local.get 0)))
  (func (export "fd_tell") (param i32 i32) (result i32)
    (call $fd_tell (local.get 0) (local.get 1)))
  (func (export "fd_write") (param i32 i32 i32 i32) (result i32)
    (call $fd_write (local.get 0) (local.get 1) (local.get 2) (local.get 3)))
  (func (export "path_create_directory") (param i32 i32 i32) (result i32)
    (call $path_create_directory (local.get 0) (local.get 1) (local.get 2)))
  (func (export "path_filestat_get") (param i32 i32 i32 i32 i32) (result i32)
    (call $path_filestat_get (local.get 0) (local.get 1) (local.get 2) (local.get 3) (local.get 4)))
  (func (export "path_filestat_set_times") (param i32 i32 i32 i32 i64 i64 i32) (result i32)
    (call $path_filestat_set_times (local.get 0) (local.get 1) (local.get 2) (local.get 3) (local.get 4) (local.get 5) (local.get 6)))
  (func (export "path_link") (param i32 i32 i32 i32 i32 i32 i32) (result i32)
    (call $path_link (local.get 0) (local.get 1) (local.get 2) (local.get 3) (local.get 4) (local.get 5) (local.get 6)))
  (func (export "path_open") (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)
    (call $path_open (local.get 0) (local.get 1) (local.get 2) (local.get 3) (local.get 4) (local.get 5) (local.get 6) (local.get 7) (local.get 8)))
  (func (export "path_readlink") (param i32 i32 i32 i32 i32 i32) (result i32)
    (call $path_readlink (local.get 0) (local.get 1) (local.get 2) (local.get 3) (local.get 4) (local.get 5)))
  (func (export "path_remove_directory") (param i32 i32 i32) (result i32)
    (call $path_remove_directory (local.get 0) (local.get 1) (local.get 2)))
  (func (export "path_rename") (param i32 i32 i32 i32 i32 i32) (result i32)
    (call $path_rename (local.get 0) (local.get 1) (local.get 2) (local.get 3) (local.get 4) (local.get 5)))
  (func (export "path_symlink") (param i32 i32 i32 i32 i32) (result i32)
    (call $path_symlink (local.get 0) (local.get 1) (local.get 2) (local.get 3) (local.get 4)))
  (func (export "path_unlink_file") (param i32 i32 i32) (result i32)
    (call $path_unlink_file (local.get 0) (local.get 1) (local.get 2)))
  (func (export "poll_oneoff") (param i32 i32 i32 i32) (result i32)
    (call $poll_oneoff (local.get 0) (local.get 1) (local.get 2) (local.get 3)))
  (func (export "proc_exit") (param i32)
    (call $proc_exit (local.get 0)))
  (func (export "proc_raise") (param i32) (result i32)
    (call $proc_raise (local.get 0)))
  (func (export "random_get") (param i32 i32) (result i32)
    (call $random_get (local.get 0) (local.get 1)))
  (func (export "sched_yield") (result i32)
    (call $sched_yield))
  (func (export "sock_accept") (param i32 i32 i32) (result i32)
    (call $sock_accept (local.get 0) (local.get 1) (local.get 2)))
  (func (export "sock_recv") (param i32 i32 i32 i32 i32 i32) (result i32)
    (call $sock_recv (local.get 0) (local.get 1) (local.get 2) (local.get 3) (local.get 4) (local.get 5)))
  (func (export "sock_send") (param i32 i32 i32 i32 i32) (result i32)
    (call $sock_send (local.get 0) (local.get 1) (local.get 2) (local.get 3) (local.get 4)))
  (func (export "sock_shutdown") (param i32 i32) (result i32)
    (call $sock_shutdown (local.get 0) (local.get 1))))
