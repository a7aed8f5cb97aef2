%% What an instance tells of itself, whatever it is doing.
-module(info_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [inst/1, inst/2, inst/3, one/1, caller/1]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) ->
    wasmtime_test:use(Runner),
    [{runner, Runner} | Config].

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

info(Inst, Key) -> maps:get(Key, wasmtime:info(Inst)).

in_state(Inst, State) -> wasmtime_test:wait_until(fun() -> info(Inst, state) =:= State end).

%% A new instance: all keys, and nothing used but its memory.
t_new(Config) ->
    Runner = proplists:get_value(runner, Config),
    Inst = inst(memory),
    ?assertEqual(#{state => idle, runner => Runner, memory_bytes => 131072, memory_peak => 131072,
                   calls => 0, host_calls => 0, queued => 0, fuel => undefined},
                 wasmtime:info(Inst)),
    ok = wasmtime:destroy(Inst),
    None = inst({wat, "(module)"}, #{}),
    ?assertMatch(#{memory_bytes := 0, memory_peak := 0}, wasmtime:info(None)),
    ok = wasmtime:destroy(None),
    [?assertError(badarg, wasmtime:info(Bad)) || Bad <- [1, make_ref(), {}]].

%% Every state, told while the guest is in it.
t_states(_) ->
    Inst = inst(loop, #{{"env", "tick"} => fun(I, []) -> ?assertEqual(host_call, info(I, state)), {ok, []} end}),
    ?assertEqual({ok, []}, wasmtime:call(Inst, <<"tick_once">>, [])),
    ?assertEqual(idle, info(Inst, state)),
    {Pid, _} = caller(fun() -> wasmtime:call(Inst, <<"spin">>, []) end),
    in_state(Inst, running),
    {Next, _} = caller(fun() -> wasmtime:call(Inst, <<"ok">>, []) end),
    wasmtime_test:wait_until(fun() -> info(Inst, queued) =:= 1 end),
    ?assertMatch(#{state := running, calls := 2, host_calls := 1}, wasmtime:info(Inst)),
    ok = wasmtime:interrupt(Inst),
    receive {Pid, _} -> ok end,
    receive {Next, Result} -> ?assertEqual({ok, [1]}, Result) end,
    ?assertMatch(#{state := idle, queued := 0, calls := 3}, wasmtime:info(Inst)),
    ok = wasmtime:destroy(Inst),
    ?assertMatch(#{state := destroyed, memory_bytes := 0, memory_peak := 65536, calls := 3},
                 wasmtime:info(Inst)).

%% Calls and host calls are counted, those inside each other too; a refused call is none.
t_counts(_) ->
    Inst = inst(host, one(fun(_, [0]) -> {ok, [0]}; (I, [N]) -> wasmtime:call(I, <<"one">>, [N - 1]) end)),
    {ok, [0]} = wasmtime:call(Inst, <<"one">>, [3]),
    ?assertMatch(#{calls := 4, host_calls := 4}, wasmtime:info(Inst)),
    {ok, [0]} = wasmtime:call(Inst, <<"double">>, [0]),
    {error, _} = wasmtime:call(Inst, <<"double">>, []),
    {error, _} = wasmtime:call(Inst, <<"nothing">>, []),
    ?assertMatch(#{calls := 5, host_calls := 4}, wasmtime:info(Inst)),
    {ok, Call} = wasmtime:call_async(Inst, <<"sum">>, [1]),
    {ok, [0]} = wasmtime:await(Inst, Call),
    ?assertMatch(#{calls := 6, host_calls := 5}, wasmtime:info(Inst)),
    ok = wasmtime:destroy(Inst).

%% Memory that grew counts, what a limit refused does not, and the peak stays.
t_memory(_) ->
    Inst = inst(memory, #{memory_limit => 4 * 65536}),
    Grow = fun(N) -> wasmtime:call(Inst, <<"grow">>, [N]) end,
    ?assertEqual({ok, [2]}, Grow(1)),
    ?assertMatch(#{memory_bytes := 196608, memory_peak := 196608}, wasmtime:info(Inst)),
    ?assertEqual({ok, [-1]}, Grow(2)),
    ?assertMatch(#{memory_bytes := 196608}, wasmtime:info(Inst)),
    ?assertEqual({ok, [3]}, Grow(1)),
    ?assertMatch(#{memory_bytes := 262144, memory_peak := 262144}, wasmtime:info(Inst)),
    ok = wasmtime:destroy(Inst),
    ?assertMatch(#{memory_bytes := 0, memory_peak := 262144}, wasmtime:info(Inst)).

%% Fuel that is left after a call; while one runs, what it began with.
t_fuel(_) ->
    Inst = inst(spin, #{}, #{fuel => true}),
    {ok, [1]} = wasmtime:call(Inst, <<"ok">>, [], #{fuel => 1000}),
    Left = info(Inst, fuel),
    ?assert(Left < 1000 andalso Left > 900, Left),
    ?assertMatch(?WASMTIME_TRAP(out_of_fuel), wasmtime:call(Inst, <<"spin">>, [], #{fuel => 1000})),
    ?assertEqual(0, info(Inst, fuel)),
    Plenty = 1 bsl 60,
    {Pid, _} = caller(fun() -> wasmtime:call(Inst, <<"spin">>, [], #{fuel => Plenty}) end),
    in_state(Inst, running),
    ?assertEqual(Plenty, info(Inst, fuel)),
    ok = wasmtime:interrupt(Inst),
    receive {Pid, _} -> ok end,
    ok = wasmtime:destroy(Inst).

%% Many ask while the guest works, and neither waits for the other.
t_while_running(_) ->
    Inst = inst(host, one(fun(_, [X]) -> {ok, [X]} end), #{fuel => true}),
    Askers = [caller(fun() -> ask(Inst, 0) end) || _ <- [1, 2, 3]],
    N = wasmtime_test:rounds(3000, 10_000, 100_000),
    ?assertEqual({ok, [N * (N - 1) div 2]}, wasmtime:call(Inst, <<"sum">>, [N])),
    _ = [Asker ! stop || {Asker, _} <- Askers],
    [receive {Asker, Asked} -> ?assert(Asked > 0) end || {Asker, _} <- Askers],
    ?assertMatch(#{host_calls := N}, wasmtime:info(Inst)),
    ok = wasmtime:destroy(Inst).

ask(Inst, Asked) ->
    #{state := State, fuel := Fuel} = wasmtime:info(Inst),
    true = is_integer(Fuel) andalso State =/= destroyed,
    receive stop -> Asked + 1 after 0 -> ask(Inst, Asked + 1) end.
