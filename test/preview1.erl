%% Drives the guest preview1.wat: raw calls of WASI, as an attacker makes them, and their answers by
%% name. Rule: nothing here asserts a behaviour of its own.
-module(preview1).

-export([with/2, inst/1, call/3, call/4, put/3, u32/2, u64/2, get/3]).
-export([path/4, paths/4, open/3, open/4, open/5, write/3, read/3, memory_end/0]).
-export([warm_up/0, alive/0, left_behind/1]).

%% Where things go in the guest's memory of four pages.
-define(IOVEC, 0).
-define(OUT, 512).
-define(TEXT, 1024).
-define(TEXT2, 65536).
-define(DATA, 131072).

memory_end() -> 4 * 65536.

with(Wasi, Fun) -> wasmtime_test:with_inst(preview1, #{wasi => Wasi}, Fun).

inst(Wasi) -> wasmtime_test:inst(preview1, #{wasi => Wasi}).

%% The errno by its name, `ok', or `{Class, Kind}' of an error.
call(Inst, Name, Args) -> call(Inst, Name, Args, #{timeout => 60_000}).

call(Inst, Name, Args, Opts) ->
    case wasmtime:call(Inst, atom_to_binary(Name), Args, Opts) of
        {ok, [Errno]} -> errno(Errno);
        {ok, []} -> ok;
        {error, #{class := exit, status := Status}} -> {exit, Status};
        {error, #{class := Class, kind := Kind}} -> {Class, Kind}
    end.

errno(Errno) ->
    Names = #{0 => ok, 2 => acces, 8 => badf, 20 => exist, 22 => fbig, 25 => ilseq, 27 => intr,
              28 => inval, 29 => io, 31 => isdir, 32 => loop, 33 => mfile, 37 => nametoolong,
              44 => noent, 48 => nomem, 54 => notdir, 55 => notempty, 57 => notsock, 58 => notsup,
              61 => overflow, 63 => perm, 70 => spipe, 75 => xdev, 76 => notcapable},
    maps:get(Errno, Names, {errno, Errno}).

put(Inst, At, Data) -> ok = wasmtime:write_memory(Inst, At, Data).

get(Inst, At, Length) ->
    {ok, Data} = wasmtime:read_memory(Inst, At, Length),
    Data.

u32(Inst, At) ->
    <<Value:32/little>> = get(Inst, At, 4),
    Value.

u64(Inst, At) ->
    <<Value:64/little>> = get(Inst, At, 8),
    Value.

%% A call whose arguments go around a path: `[Fd | Path] ++ Rest'. A list stands for what comes before it.
path(Inst, Name, Fd, {Path, Rest}) ->
    put(Inst, ?TEXT, Path),
    call(Inst, Name, fds(Fd) ++ [?TEXT, byte_size(Path)] ++ Rest).

fds(Fds) when is_list(Fds) -> Fds;
fds(Fd) -> [Fd].

%% The calls of two paths: path_rename, path_link and path_symlink.
paths(Inst, path_symlink, Target, {Fd, Path}) ->
    put(Inst, ?TEXT, Target),
    put(Inst, ?TEXT2, Path),
    call(Inst, path_symlink, [?TEXT, byte_size(Target), Fd, ?TEXT2, byte_size(Path)]);
paths(Inst, Name, {Fd, From}, {ToFd, To}) ->
    put(Inst, ?TEXT, From),
    put(Inst, ?TEXT2, To),
    call(Inst, Name, fds(Fd) ++ [?TEXT, byte_size(From), ToFd, ?TEXT2, byte_size(To)]).

%% Opens: `{ok, Fd}' or the answer. Rights are read, write or both; flags a list.
open(Inst, Fd, Path) -> open(Inst, Fd, Path, [read]).

open(Inst, Fd, Path, Rights) -> open(Inst, Fd, Path, Rights, []).

open(Inst, Fd, Path, Rights, Flags) ->
    Follow = case lists:member(nofollow, Flags) of true -> 0; false -> 1 end,
    Mode = bits(Rights, [{read, 2}, {write, 64}]),
    Open = bits(Flags, [{creat, 1}, {directory, 2}, {excl, 4}, {trunc, 8}]),
    Append = bits(Flags, [{append, 1}]),
    case path(Inst, path_open, [Fd, Follow], {Path, [Open, Mode, 0, Append, ?OUT]}) of
        ok -> {ok, u32(Inst, ?OUT)};
        Answer -> Answer
    end.

bits(Names, Table) -> lists:sum([Bit || {Name, Bit} <- Table, lists:member(Name, Names)]).

write(Inst, Fd, Data) ->
    put(Inst, ?DATA, Data),
    put(Inst, ?IOVEC, <<?DATA:32/little, (byte_size(Data)):32/little>>),
    case call(Inst, fd_write, [Fd, ?IOVEC, 1, ?OUT]) of
        ok -> {ok, u32(Inst, ?OUT)};
        Answer -> Answer
    end.

read(Inst, Fd, Length) ->
    put(Inst, ?IOVEC, <<?DATA:32/little, Length:32/little>>),
    case call(Inst, fd_read, [Fd, ?IOVEC, 1, ?OUT]) of
        ok -> {ok, get(Inst, ?DATA, u32(Inst, ?OUT))};
        Answer -> Answer
    end.

%% Sleeps for a moment, so that what serves all sleeps is there before anything is counted.
warm_up() ->
    with(#{}, fun(Inst) ->
        put(Inst, 0, <<0:128, 1:32/little, 0:32, 1_000_000:64/little, 0:128>>),
        ok = call(Inst, poll_oneoff, [0, ?TEXT, 1, ?OUT])
    end).

%% What lives before a case, to be compared afterwards.
alive() ->
    #{threads_parked := Parked} = Live = wasmtime_test:settled(),
    {Threads, Files} = wasmtime_test:resources(),
    #{live => maps:remove(threads_parked, Live), threads => Threads - Parked, files => Files}.

%% What a case left behind: `ok', or a failure for end_per_testcase/2. Threads that serve all
%% instances are made at the first need and stay.
left_behind(Before) ->
    After = alive(),
    #{threads := Threads, files := Files, live := Live} = Before,
    case After of
        #{live := Live, threads := T, files := F} when T =< Threads + 4, F =< Files + 2 -> ok;
        _ -> {fail, {left_behind, Before, After}}
    end.
