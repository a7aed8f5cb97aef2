%% Pools for suites: their options, and requests that hold places.
%% Rule: nothing here asserts a behaviour of its own, but that nothing native is left where a suite asks.
-module(wasmtime_pool_test).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-import(wasmtime_test, [mod/1, caller/1, wait_until/1, settled/0]).

%% service.wat, of another version.
version(N) ->
    {wat, Text} = wasmtime_test:source(service),
    {wat, re:replace(Text, "1001", integer_to_list(N), [{return, binary}])}.

instance(Ask) -> wasmtime_test:with_runner(#{{"env", "ask"} => fun(_, [X]) -> {ok, [Ask(X)]} end}).

opts(More) -> opts(fun(X) -> X end, More).

opts(Ask, More) -> maps:merge(#{module => mod(service), instance => instance(Ask), size => 2}, More).

start(More) -> start(fun(X) -> X end, More).

start(Ask, More) ->
    {ok, Pool} = wasmtime_pool:start_link(opts(Ask, More)),
    Pool.

stats(Pool) ->
    {ok, Stats} = wasmtime_pool:stats(Pool),
    Stats.

%% Waits until so many have a place and so many wait for one.
until(Pool, InFlight, Waiting) ->
    wait_until(fun() ->
        #{in_flight := F, waiting := W} = stats(Pool),
        {F, W} =:= {InFlight, Waiting}
    end).

%% A process whose request holds a place until it is sent `go'.
holder(Pool) ->
    {Pid, _} = caller(fun() -> wasmtime_pool:run(Pool, fun(_) -> receive go -> held end end) end),
    Pid.

holders(Pool, N) ->
    Pids = [holder(Pool) || _ <- lists:seq(1, N)],
    wait_until(fun() -> #{in_flight := F, waiting := W} = stats(Pool), F + W >= N end),
    Pids.

go(Pids) ->
    [Pid ! go || Pid <- Pids],
    [receive {Pid, Result} -> Result end || Pid <- Pids].

%% Runs in a process of its own, and counts native objects before and after.
settled_after(Fun) ->
    Before = maps:remove(threads_parked, settled()),
    wasmtime_test:in_process(fun() -> process_flag(trap_exit, true), Fun() end),
    ?assertEqual(Before, maps:remove(threads_parked, settled())).

%% The file of a module's artifact.
artifact(Source) ->
    Bin = wasmtime_test:artifact(Source, #{}),
    Path = filename:join("/tmp", "wasmtime_pool_" ++ integer_to_list(erlang:phash2(Bin)) ++ ".cwasm"),
    ok = file:write_file(Path ++ ".new", Bin),
    ok = file:rename(Path ++ ".new", Path),
    Path.
