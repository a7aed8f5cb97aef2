%% What the suites share: guests, instances, and ways to look at what is left behind.
%% Rule: nothing here asserts a behaviour of its own; it fails only when the set-up fails.
-module(wasmtime_test).

-export([cases/1, both/0, both/1, use/1, with_runner/1, instantiate/1, instantiate/2, prepare/2, preinit/3, suite/0, root/0, rounds/3]).
-export([source/1, wasm/1, mod/1, mod/2, artifact/2, inst/1, inst/2, inst/3, one/1]).
-export([with_inst/3, with_pool/3, with_pool/4, restored/1, pool/1]).
-export([calling/1, caller/1, in_process/1, wait_until/1, wait_until/2, mailbox/0, settled/0, resources/0, counted/1]).
-export([temp/2, write/3]).

%% The exported functions of a suite that are cases.
cases(Suite) ->
    lists:sort([Name || {Name, 1} <- Suite:module_info(exports),
                        lists:prefix("t_", atom_to_list(Name))]).

%% A suite whose cases run under each runner: its all/0, its groups/0, and what a group begins with.
both() -> [{group, thread}, {group, scheduler}].

both(Suite) -> [{Runner, [], cases(Suite)} || {group, Runner} <- both()].

use(Runner) -> persistent_term:put(?MODULE, Runner).

%% As wasmtime's functions, with the runner of the group.
instantiate(Mod) -> instantiate(Mod, #{}).

instantiate(Mod, Opts) -> wasmtime:instantiate(Mod, with_runner(Opts)).

prepare(Mod, Opts) -> wasmtime:prepare(Mod, with_runner(Opts)).

preinit(Wasm, Opts, Init) -> wasmtime:preinit(Wasm, with_runner(Opts), Init).

with_runner(Opts) when is_map(Opts) ->
    maps:merge(#{runner => persistent_term:get(?MODULE, thread)}, Opts);
with_runner(Opts) ->
    Opts.

%% A case that hangs is a failure, soon.
suite() ->
    [{timetrap, {minutes, rounds(3, 5, 120)}}].

%% The project's folder: where the guests, the README and the docs are.
root() ->
    up(filename:absname(filename:dirname(code:which(?MODULE)))).

up("/") ->
    error(no_project_around_the_tests);
up(Dir) ->
    case filelib:is_dir(filename:join([Dir, "test", "guests"]))
        andalso filelib:is_file(filename:join(Dir, "rebar.config")) of
        true -> Dir;
        false -> up(filename:dirname(Dir))
    end.

%% How often to do it: in a quick run, normally, and with FULL=1.
rounds(Quick, Normal, Full) ->
    case {os:getenv("FULL"), os:getenv("QUICK")} of
        {"1", _} -> Full;
        {_, "1"} -> Quick;
        _ -> Normal
    end.

%% ---- guests ---------------------------------------------------------------------------------

%% A guest's text, as `wasmtime:compile' takes it.
source(Name) ->
    Path = filename:join([root(), "test", "guests", atom_to_list(Name) ++ ".wat"]),
    {ok, Text} = file:read_file(Path),
    {wat, Text}.

wasm(Name) ->
    {wat, Text} = source(Name),
    {ok, Wasm} = wasmtime:wat2wasm(Text),
    Wasm.

mod(Name) -> mod(Name, #{}).

mod(Name, Opts) when is_atom(Name) -> mod(source(Name), Opts);
mod(Source, Opts) ->
    {ok, Mod} = case os:getenv("WASMTIME_ARTIFACTS") of
        false -> wasmtime:compile(Source, Opts);
        Dir -> through_artifact(filename:join(Dir, artifact_name({Source, Opts})), Source, Opts)
    end,
    Mod.

%% The bytes of a module's artifact.
artifact(Source, Opts) ->
    Mod = mod(Source, Opts),
    case os:getenv("WASMTIME_ARTIFACTS") of
        false ->
            {ok, Bin} = wasmtime:serialize(Mod),
            Bin;
        Dir ->
            {ok, Bin} = file:read_file(filename:join(Dir, artifact_name({Source, Opts}))),
            Bin
    end.

%% A build with a compiler leaves the artifact where one without it looks for it.
through_artifact(Path, Source, Opts) ->
    case wasmtime:features() of
        #{compiler := true} ->
            {ok, Mod} = wasmtime:compile(Source, Opts),
            {ok, Bin} = wasmtime:serialize(Mod),
            ok = filelib:ensure_dir(Path),
            write(filename:dirname(Path), filename:basename(Path), Bin),
            {ok, Mod};
        #{compiler := false} ->
            wasmtime:deserialize_file(Path, Opts)
    end.

artifact_name(Key) -> binary_to_list(binary:encode_hex(erlang:md5(term_to_binary(Key)))).

inst(Name) -> inst(Name, #{}).

inst(Source, Opts) when not is_reference(Source) -> inst(Source, Opts, #{});
inst(Mod, Opts) ->
    {ok, Inst} = instantiate(Mod, Opts),
    Inst.

inst(Name, Opts, CompileOpts) -> inst(mod(Name, CompileOpts), Opts).

%% Runs and destroys.
with_inst(Name, Opts, Fun) ->
    Inst = inst(Name, Opts),
    try Fun(Inst) after wasmtime:destroy(Inst) end.

%% Imports of host.wat: one(X) is Fun([X]), the others give back what they get.
one(Fun) ->
    #{imports => #{{<<"env">>, <<"one">>} => Fun,
                   {<<"env">>, <<"swap">>} => fun(_, [A, B]) -> {ok, [B, A]} end,
                   {<<"env">>, <<"none">>} => fun(_, []) -> {ok, []} end}}.

%% ---- pools ----------------------------------------------------------------------------------

%% Compile options of a small pool that checks every reset.
pool(Extra) ->
    Small = #{instances => 4, max_memory => 64 * 1024 * 1024, verify => true},
    #{allocator => pooling, pooling => maps:merge(Small, Extra)}.

%% Runs with a pooled module. Afterwards every slot is free and no reset was found wanting.
with_pool(Name, Extra, Fun) -> with_pool(Name, Extra, #{}, Fun).

with_pool(Name, Extra, CompileOpts, Fun) ->
    Mod = mod(Name, maps:merge(pool(Extra), CompileOpts)),
    Result = Fun(Mod),
    #{verify_failures := 0} = restored(Mod),
    Result.

%% Waits until every memory of the module's pool is restored, and tells of the pool.
restored(Mod) ->
    wait_until(fun() ->
        #{used := Used, restoring := Restoring} = wasmtime:pool_info(Mod),
        {Used, Restoring} =:= {0, 0}
    end),
    wasmtime:pool_info(Mod).

%% ---- processes ------------------------------------------------------------------------------

%% A process that does Fun() and sends the result to us: {Pid, Monitor}.
caller(Fun) ->
    Self = self(),
    spawn_monitor(fun() -> Self ! {self(), Fun()} end).

%% Does it in a process of its own, so that all it held is garbage when this returns.
in_process(Fun) ->
    {Pid, Monitor} = caller(Fun),
    receive
        {Pid, Result} ->
            receive {'DOWN', Monitor, process, Pid, _} -> Result end;
        {'DOWN', Monitor, process, Pid, Reason} ->
            error({died, Reason})
    end.

%% Waits until the process is inside a call, or in a host function that sleeps.
calling(Pid) ->
    Inside = [{wasmtime_call, drive, 3}, {wasmtime_nif, call_poll, 1}],
    wait_until(fun() ->
        [{status, Status}, {current_function, At}] =
            process_info(Pid, [status, current_function]),
        Status =:= waiting orelse lists:member(At, Inside)
    end).

wait_until(Fun) -> wait_until(Fun, 10_000).

wait_until(Fun, Ms) when Ms =< 0 ->
    true = Fun();
wait_until(Fun, Ms) ->
    case Fun() of
        true -> true;
        _ -> timer:sleep(5), wait_until(Fun, Ms - 5)
    end.

mailbox() ->
    {messages, Messages} = process_info(self(), messages),
    Messages.

%% ---- what is left behind --------------------------------------------------------------------

%% Native objects that are alive, once garbage is collected and threads have gone quiet.
settled() ->
    [erlang:garbage_collect(Pid) || Pid <- processes()],
    settle(wasmtime_nif:live(), 100).

settle(Live, 0) -> Live;
settle(Live, N) ->
    timer:sleep(20),
    case wasmtime_nif:live() of
        Live when N < 95 -> Live;
        Next -> settle(Next, N - 1)
    end.

%% What the operating system knows of this VM: threads and open files.
resources() ->
    {count("/proc/self/task"), count("/proc/self/fd")}.

count(Dir) ->
    case file:list_dir(Dir) of
        {ok, Names} -> length(Names);
        {error, enoent} -> 0
    end.

%% Runs in a process of its own, and counts before and after. The first run warms caches up.
counted(Fun) ->
    in_process(Fun),
    Live = maps:remove(threads_parked, settled()),
    {Threads, Files} = resources(),
    in_process(Fun),
    Live = maps:remove(threads_parked, settled()),
    {ThreadsAfter, FilesAfter} = resources(),
    true = ThreadsAfter =< Threads + 4 orelse {threads, Threads, ThreadsAfter},
    true = FilesAfter =< Files + 2 orelse {files, Files, FilesAfter},
    ok.

%% ---- files ----------------------------------------------------------------------------------

%% A folder of the case's own.
temp(Config, Name) ->
    Dir = filename:join(proplists:get_value(priv_dir, Config), Name),
    ok = filelib:ensure_dir(filename:join(Dir, "x")),
    Dir.

%% A whole file or none: an artifact that is in use is mapped, and must not be cut under its users.
write(Dir, Name, Data) ->
    Path = filename:join(Dir, Name),
    ok = file:write_file([Path, ".new"], Data),
    ok = file:rename([Path, ".new"], Path),
    Path.
