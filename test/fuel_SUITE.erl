%% Fuel: of a call, of calls inside calls, and what is left of it.
-module(fuel_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

-define(ALL, 16#FFFFFFFFFFFFFFFF).

with_fuel(Fun) -> with_fuel(fun(_, [X]) -> {ok, [X]} end, Fun).

%% An instance of host.wat that counts fuel.
with_fuel(Host, Fun) ->
    Inst = wasmtime_test:inst(host, wasmtime_test:one(Host), #{fuel => true}),
    try Fun(Inst) after wasmtime:destroy(Inst) end.

left(Inst) -> {ok, Fuel} = wasmtime:fuel_remaining(Inst), Fuel.

%% What a call costs, with all the fuel there is.
cost(Inst, Name, Args) ->
    {ok, _} = wasmtime:call(Inst, Name, Args),
    ?ALL - left(Inst).

%% A call has as much as it is given: what it needs is enough, one less is not.
t_enough(_) ->
    with_fuel(fun(Inst) ->
        Cost = cost(Inst, "sum", [100]),
        ?assert(Cost > 100),
        ?assertEqual(Cost, cost(Inst, "sum", [100])),
        {ok, [_]} = wasmtime:call(Inst, "sum", [100], #{fuel => Cost + 1}),
        ?assertEqual(1, left(Inst)),
        Least = least(Inst, 0, Cost),
        ?assert(Least > Cost - 20),
        ?assertEqual({ok, [4950]}, wasmtime:call(Inst, "sum", [100], #{fuel => Least})),
        ?assertMatch(?WASMTIME_TRAP(out_of_fuel),
                     wasmtime:call(Inst, "sum", [100], #{fuel => Least - 1})),
        ?assertMatch(?WASMTIME_TRAP(out_of_fuel), wasmtime:call(Inst, "sum", [1], #{fuel => 0}))
    end).

%% Between what is too little and what is enough. Guests look at their fuel where functions begin and
%% loops turn, so the last few instructions may cost more than there is.
least(Inst, Low, High) when High - Low > 1 ->
    Middle = (Low + High) div 2,
    case wasmtime:call(Inst, "sum", [100], #{fuel => Middle}) of
        {ok, _} -> least(Inst, Low, Middle);
        ?WASMTIME_TRAP(out_of_fuel) -> least(Inst, Middle, High)
    end;
least(_, _, High) -> High.

%% Right after a trap the rest is told: nothing when it ran out, what is left after another trap.
t_after_a_trap(_) ->
    with_fuel(fun(_, _) -> error(no) end, fun(Inst) ->
        ?assertMatch(?WASMTIME_ERROR(host, host_error), wasmtime:call(Inst, "one", [1], #{fuel => 1000})),
        Left = left(Inst),
        ?assert(Left > 900 andalso Left < 1000)
    end),
    Traps = wasmtime_test:inst(traps, #{}, #{fuel => true}),
    ?assertMatch(?WASMTIME_TRAP(unreachable),
                 wasmtime:call(Traps, "unreachable", [], #{fuel => 1000})),
    Rest = left(Traps),
    ?assert(Rest > 900 andalso Rest < 1000),
    ok = wasmtime:destroy(Traps),
    Spin = wasmtime_test:inst(spin, #{}, #{fuel => true}),
    ?assertMatch(?WASMTIME_TRAP(out_of_fuel), wasmtime:call(Spin, "spin", [], #{fuel => 10_000})),
    ?assertEqual(0, left(Spin)),
    %% The next call is not held to that.
    ?assertEqual({ok, [1]}, wasmtime:call(Spin, "ok", [])),
    %% What was stopped from outside is told to within 100,000.
    ?assertMatch(?WASMTIME_TRAP(timeout), wasmtime:call(Spin, "spin", [], #{timeout => 50})),
    ?assert(left(Spin) =< ?ALL - 100_000),
    ok = wasmtime:destroy(Spin).

%% A fresh instance has all of it.
t_fresh(_) ->
    with_fuel(fun(Inst) -> ?assertEqual(?ALL, left(Inst)) end).

%% Fuel from 0 to 2^64 - 1, and nothing else.
t_range(_) ->
    with_fuel(fun(Inst) ->
        ?assertEqual({ok, [6]}, wasmtime:call(Inst, "double", [3], #{fuel => ?ALL})),
        [?assertMatch(?WASMTIME_BADARG(fuel), wasmtime:call(Inst, "double", [3], #{fuel => Bad}))
         || Bad <- [-1, ?ALL + 1, 1.0, a, undefined, infinity]]
    end).

%% A call inside a host function uses what the call around it has left ...
t_nested_shares(_) ->
    Nest = fun(Inst, [0]) ->
                   {ok, [2]} = wasmtime:call(Inst, "double", [1]),
                   Before = left(Inst),
                   {ok, [2]} = wasmtime:call(Inst, "double", [1]),
                   ?assert(left(Inst) < Before),
                   {ok, [0]};
              (_, [X]) -> {ok, [X]}
           end,
    with_fuel(Nest, fun(Inst) ->
        Outer = cost(Inst, "one", [1]),
        Inner = cost(Inst, "double", [1]),
        {ok, [0]} = wasmtime:call(Inst, "one", [0], #{fuel => 10_000}),
        ?assertEqual(10_000 - Outer - 2 * Inner, left(Inst)),
        %% ... and not more.
        ?assertMatch(?WASMTIME_ERROR(host, host_error),
                     wasmtime:call(Inst, "one", [0], #{fuel => Outer + Inner - 1}))
    end).

%% With fuel of its own it leaves that of the call around it alone, however it ends.
t_nested_own(_) ->
    Nest = fun(Inst, [X]) ->
        {ok, [2]} = wasmtime:call(Inst, "double", [1], #{fuel => 1_000_000}),
        {ok, _} = wasmtime:call(Inst, "sum", [0], #{fuel => 1_000}),
        ?assertMatch(?WASMTIME_TRAP(out_of_fuel), wasmtime:call(Inst, "sum", [3], #{fuel => 1})),
        {ok, [X]}
    end,
    with_fuel(fun(_, [X]) -> {ok, [X]} end, fun(Plain) ->
        Cost = cost(Plain, "one", [1]),
        with_fuel(Nest, fun(Inst) ->
            ?assertEqual({ok, [1]}, wasmtime:call(Inst, "one", [1], #{fuel => 1000})),
            ?assertEqual(1000 - Cost, left(Inst))
        end)
    end).

%% A call through a reference takes fuel like any other.
t_call_ref(_) ->
    with_fuel(fun(Inst) ->
        {ok, Double} = wasmtime:funcref(Inst, "double"),
        {ok, [4]} = wasmtime:call_ref(Inst, Double, [2], #{fuel => 100}),
        ?assert(left(Inst) < 100),
        ?assertMatch(?WASMTIME_TRAP(out_of_fuel),
                     wasmtime:call_ref(Inst, Double, [2], #{fuel => 1}))
    end).

t_refused(_) ->
    wasmtime_test:with_inst(add, #{}, fun(Inst) ->
        ?assertMatch(?WASMTIME_ERROR(call, unsupported), wasmtime:fuel_remaining(Inst)),
        ?assertMatch(?WASMTIME_BADARG(fuel), wasmtime:call(Inst, "add", [1, 2], #{fuel => 5})),
        ok = wasmtime:destroy(Inst),
        ?assertMatch(?WASMTIME_ERROR(call, destroyed), wasmtime:fuel_remaining(Inst))
    end),
    [?assertError(badarg, wasmtime:fuel_remaining(Bad)) || Bad <- [a, make_ref()]].
