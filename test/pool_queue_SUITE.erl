%% The queue of a pool: what one that waits costs does not grow with the others, and nothing is kept of one
%% that gave up.
-module(pool_queue_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [caller/1, wait_until/1]).
-import(wasmtime_pool_test, [start/1, stats/1, until/3, holders/2, go/1]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

init_per_testcase(_, Config) ->
    process_flag(trap_exit, true),
    Config.

end_per_testcase(_, _) -> process_flag(trap_exit, false).

%% Eight times as many that come at once are about eight times the work of the pool's process, not 64 times.
t_long(_) ->
    [Few, Many] = [work(N) || N <- [500, 4000]],
    ?assert(Many < 20 * Few).

%% Reductions of the pool's process for so many requests that must wait. They come while it is suspended, so
%% that it looks for the dead as rarely either way.
work(N) ->
    Pool = start(#{size => 1, max_queue => N, queue_timeout => infinity, drain_timeout => 0}),
    [Holder] = holders(Pool, 1),
    ok = sys:suspend(Pool),
    Waiting = [caller(fun() -> wasmtime_pool:request(Pool, "count", []) end) || _ <- lists:seq(1, N)],
    wait_until(fun() -> {message_queue_len, Q} = process_info(Pool, message_queue_len), Q >= N end),
    {reductions, Before} = process_info(Pool, reductions),
    ok = sys:resume(Pool),
    _ = sys:get_state(Pool),
    {reductions, After} = process_info(Pool, reductions),
    ?assertMatch(#{in_flight := 1, waiting := N}, stats(Pool)),
    [held] = go([Holder]),
    [receive {Pid, Result} -> ?assertEqual({ok, [1]}, Result) end || {Pid, _} <- Waiting],
    ok = wasmtime_pool:stop(Pool),
    After - Before.

%% One that waits on holds up the traces of nobody who gave up behind it, and is served.
t_gave_up(_) ->
    Pool = start(#{size => 1, max_queue => 1000}),
    Holders = holders(Pool, 1),
    {Patient, _} = caller(fun() -> wasmtime_pool:request(Pool, "count", [], #{queue_timeout => infinity}) end),
    until(Pool, 1, 1),
    Size = fun() -> erts_debug:flat_size(sys:get_state(Pool)) end,
    Before = Size(),
    N = 300,
    Others = [caller(fun() -> wasmtime_pool:request(Pool, "count", [], #{queue_timeout => 20}) end)
              || _ <- lists:seq(1, N)],
    [receive {Pid, Result} -> ?assertMatch(?WASMTIME_ERROR(pool, overload), Result) end || {Pid, _} <- Others],
    until(Pool, 1, 1),
    ?assertMatch(#{overloaded := N}, stats(Pool)),
    wait_until(fun() -> Size() < Before + N end),
    [held] = go(Holders),
    receive {Patient, Last} -> ?assertEqual({ok, [1]}, Last) end,
    ok = wasmtime_pool:stop(Pool).

%% The longest times that Erlang can wait are as good as any, also where something is added to them.
t_longest_times(_) ->
    Max = 16#FFFFFFFF,
    Pool = start(#{name => longest, size => 1, queue_timeout => Max, timeout => Max, drain_timeout => Max}),
    Holders = holders(Pool, 1),
    Waiting = [caller(Wait) || Wait <- [fun() -> wasmtime_pool:request(Pool, "count", []) end,
                                        fun() -> wasmtime_pool:request(Pool, "count", [], #{timeout => Max}) end,
                                        fun() -> wasmtime_pool:run(Pool, fun(_) -> {ok, [1]} end) end]],
    until(Pool, 1, 3),
    [held] = go(Holders),
    [receive {Pid, Result} -> ?assertEqual({ok, [1]}, Result) end || {Pid, _} <- Waiting],
    ?assertEqual({ok, 0}, wasmtime_pool:drain(Pool, Max)),
    ok = wasmtime_pool:stop(Pool, Max),
    Spec = wasmtime_pool:child_spec(wasmtime_pool_test:opts(#{name => longest, drain_timeout => Max})),
    ?assertMatch(#{shutdown := Max}, Spec),
    {ok, Sup} = server_SUITE:supervisor_of([Spec]),
    ?assertEqual(ok, supervisor:terminate_child(Sup, longest)),
    ok = server_SUITE:stop(Sup),
    {ok, Server} = wasmtime_server:start_link((server_SUITE:opts(fun(X) -> X end))#{timeout => Max}),
    [?assertMatch({ok, [_]}, wasmtime_server:call(Server, "count", [], Opts)) || Opts <- [#{}, #{timeout => Max}]],
    ok = wasmtime_server:stop(Server).
