%% Start sections in pools and servers: a request's time, a drain and a stop end one that never ends, and no
%% instance is left.
-module(pool_start_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [mod/1, caller/1, calling/1, wait_until/1]).
-import(wasmtime_pool_test, [stats/1, until/3, settled_after/1]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

init_per_testcase(_, Config) ->
    process_flag(trap_exit, true),
    Config.

end_per_testcase(_, _) -> process_flag(trap_exit, false).

start(Mod, More) ->
    Opts = #{module => Mod, instance => wasmtime_test:with_runner(#{}), size => 1, drain_timeout => 20},
    {ok, Pool} = wasmtime_pool:start_link(maps:merge(Opts, More)),
    Pool.

%% Requests, and runs, that are in a start section which never ends.
starting(Pool) ->
    Works = [fun() -> wasmtime_pool:request(Pool, "ok", []) end,
             fun() -> wasmtime_pool:run(Pool, fun(_) -> started end) end],
    Callers = [element(1, caller(Work)) || Work <- Works],
    until(Pool, 2, 0),
    [calling(Pid) || Pid <- Callers],
    Callers.

ended(Callers) ->
    [receive {Pid, Result} -> ?assertMatch(?WASMTIME_ERROR(call, destroyed), Result) end || Pid <- Callers].

%% A request's time bounds the start section, be it the pool's or its own; the message names the time that was
%% given. The place and the instance are free afterwards.
t_timeout(_) ->
    Mod = mod(start_loop),
    settled_after(fun() ->
        Pool = start(Mod, #{timeout => 30}),
        [begin
             {error, Error} = wasmtime_pool:request(Pool, "ok", [], Opts),
             Message = iolist_to_binary(io_lib:format("the call did not end within ~w ms", [Ms])),
             ?assertMatch(#{class := trap, kind := timeout, message := Message}, Error)
         end || {Ms, Opts} <- [{30, #{}}, {20, #{timeout => 20}}]],
        ?assertMatch(#{in_flight := 0, failed := 2}, stats(Pool)),
        ok = wasmtime_pool:stop(Pool)
    end),
    ?assertEqual(module, wasmtime:module_kind(Mod)).

%% A start section that ends in time costs a request nothing but that, and one that traps is its error.
t_good_and_bad(_) ->
    Pool = start({file, wasmtime_pool_test:artifact(wasmtime_test:source(start_ok))}, #{timeout => 60_000}),
    ?assertEqual({ok, <<42>>}, wasmtime_pool:run(Pool, fun(I) -> wasmtime:read_memory(I, 8, 1) end)),
    ok = wasmtime_pool:stop(Pool),
    Traps = start(mod(start_trap), #{timeout => 60_000}),
    ?assertMatch(?WASMTIME_TRAP(unreachable), wasmtime_pool:request(Traps, "ok", [])),
    ?assertMatch(#{in_flight := 0, failed := 1}, stats(Traps)),
    ok = wasmtime_pool:stop(Traps).

%% A drain whose time is up ends start sections, too: when it answers no instance is left.
t_drain(_) ->
    Mod = mod(start_loop),
    settled_after(fun() ->
        Pool = start(Mod, #{size => 2}),
        Callers = starting(Pool),
        ?assertEqual({ok, 2}, wasmtime_pool:drain(Pool, 0)),
        ?assertMatch(#{stores := 0}, wasmtime_nif:live()),
        ended(Callers),
        ok = wasmtime_pool:stop(Pool)
    end),
    ?assertEqual(module, wasmtime:module_kind(Mod)).

%% So do a stop, a kill of the pool, and the death of a caller.
t_ends(_) ->
    Mod = mod(start_loop),
    settled_after(fun() ->
        [begin
             Pool = start(Mod, #{size => 2}),
             Callers = starting(Pool),
             End(Pool),
             ended(Callers)
         end || End <- [fun wasmtime_pool:stop/1, fun(Pool) -> exit(Pool, kill) end]],
        Pool = start(Mod, #{size => 2}),
        [exit(Pid, kill) || Pid <- starting(Pool)],
        until(Pool, 0, 0),
        ok = wasmtime_pool:stop(Pool)
    end),
    ?assertEqual(module, wasmtime:module_kind(Mod)).

%% A server that is stopped in its start section leaves no instance when `stop' has answered, and who starts it
%% learns of it.
t_server(_) ->
    Mod = mod(start_loop),
    settled_after(fun() ->
        Opts = #{module => Mod, name => starting, instance => wasmtime_test:with_runner(#{})},
        {Starts, _} = caller(fun() -> process_flag(trap_exit, true), wasmtime_server:start_link(Opts) end),
        wait_until(fun() -> is_pid(whereis(starting)) end),
        wait_until(fun() -> map_get(stores, wasmtime_nif:live()) > 0 end),
        ok = wasmtime_server:stop(starting),
        ?assertMatch(#{stores := 0}, wasmtime_nif:live()),
        receive {Starts, Result} -> ?assertEqual({error, normal}, Result) end
    end),
    ?assertEqual(module, wasmtime:module_kind(Mod)).
