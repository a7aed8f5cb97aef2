%% wasmtime_server while it makes an instance: an init that takes for ever holds up nobody, and whoever
%% ends the server or the process that makes the instance leaves nothing behind.
-module(server_start_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [mod/1, caller/1, calling/1, wait_until/1]).
-import(wasmtime_pool_test, [settled_after/1, version/1]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

init_per_testcase(_, Config) ->
    process_flag(trap_exit, true),
    Config.

end_per_testcase(_, _) -> process_flag(trap_exit, false).

%% The first init ends at once, each later one tells that it has begun, and spins.
slow(Count) ->
    Self = self(),
    fun(Inst) ->
        case counters:get(Count, 1) of
            0 -> counters:add(Count, 1, 1);
            _ -> Self ! {init, self(), Inst}, {ok, _} = wasmtime:call(Inst, "spin", [])
        end,
        ok
    end.

opts(Init, More) -> server_SUITE:opts(fun(X) -> X end, maps:merge(#{init => Init}, More)).

start(Init, More) ->
    {ok, Server} = wasmtime_server:start_link(opts(Init, More)),
    Server.

%% A server whose reset has begun, who resets it, and the instance that is being made.
resetting(More) ->
    Server = start(slow(counters:new(1, [])), More),
    {Resets, _} = caller(fun() -> wasmtime_server:reset(Server) end),
    receive {init, Maker, Inst} -> {Server, Resets, Maker, Inst} end.

%% While a reset runs its init the old instance is served, and the server answers everything. An init that is
%% ended is the reset's error.
t_reset(_) ->
    {Server, Resets, Maker, Fresh} = resetting(#{timeout => 5000}),
    ?assertNotEqual(Server, Maker),
    ?assertEqual({ok, [1]}, wasmtime_server:call(Server, "count", [])),
    ?assertEqual({ok, [2]}, wasmtime_server:call(Server, "count", [], #{timeout => 5000})),
    ?assertEqual(not_running, wasmtime_server:interrupt(Server)),
    ?assertMatch({ok, #{fresh := 1}}, wasmtime_server:info(Server)),
    {ok, Old} = wasmtime_server:instance(Server),
    ?assertEqual({ok, [3]}, wasmtime:call(Old, "count", [])),
    calling(Maker),
    ?assertEqual(ok, wasmtime:interrupt(Fresh)),
    receive {Resets, Result} -> ?assertMatch(?WASMTIME_ERROR(instantiate, init), Result) end,
    ?assertMatch(?WASMTIME_ERROR(call, destroyed), wasmtime:call(Fresh, "count", [])),
    ?assertEqual({ok, [4]}, wasmtime_server:call(Server, "count", [])),
    ok = wasmtime_server:stop(Server).

%% Changes that come meanwhile are made one after the other, in their order.
t_changes_queue(_) ->
    {Server, Resets, Maker, Fresh} = resetting(#{}),
    {Swaps, _} = caller(fun() -> wasmtime_server:swap(Server, mod(version(1002))) end),
    calling(Swaps),
    calling(Maker),
    ok = wasmtime:interrupt(Fresh),
    receive {Resets, {error, _}} -> ok end,
    receive {init, Next, Second} -> calling(Next), ok = wasmtime:interrupt(Second) end,
    receive {Swaps, {error, _}} -> ok end,
    ?assertEqual({ok, [1001]}, wasmtime_server:call(Server, "version", [])),
    ok = wasmtime_server:stop(Server).

%% The death of the process that runs the init is the init's failure: of a reset, and of a start.
t_maker_dies(_) ->
    Mod = mod(service),
    settled_after(fun() ->
        {Server, Resets, Maker, Fresh} = resetting(#{module => Mod}),
        exit(Maker, kill),
        receive {Resets, Result} -> ?assertMatch(?WASMTIME_ERROR(instantiate, init), Result) end,
        wait_until(fun() -> map_get(state, wasmtime:info(Fresh)) =:= destroyed end),
        ?assertEqual({ok, [1]}, wasmtime_server:call(Server, "count", [])),
        ok = wasmtime_server:stop(Server),
        ?assertMatch(?WASMTIME_ERROR(instantiate, init),
                     wasmtime_server:start_link(opts(fun(_) -> exit(self(), kill) end, #{module => Mod})))
    end),
    ?assertEqual(module, wasmtime:module_kind(Mod)).

%% Stopping or killing the server ends the init, also one of the start, and leaves no instance.
t_end(_) ->
    Mod = mod(service),
    Ends = [fun wasmtime_server:stop/1, fun(Server) -> exit(Server, kill) end],
    settled_after(fun() ->
        [begin
             {Server, Resets, Maker, _} = resetting(#{module => Mod}),
             Watch = monitor(process, Maker),
             End(Server),
             receive {'DOWN', Watch, _, _, _} -> ok end,
             receive {Resets, Result} -> ?assertMatch(?WASMTIME_ERROR(call, destroyed), Result) end
         end || End <- Ends],
        [begin
             {Starts, Calls} = starting(Mod, #{}),
             Server = whereis(slow),
             End(Server),
             receive {Starts, Started} -> ?assertMatch({error, Reason} when Reason =:= normal; Reason =:= killed, Started) end,
             receive {Calls, Called} -> ?assertMatch(?WASMTIME_ERROR(call, destroyed), Called) end
         end || End <- Ends]
    end),
    ?assertEqual(module, wasmtime:module_kind(Mod)).

%% A server that starts for ever, who starts it, and a call that waits for it.
starting(Mod, More) ->
    Count = counters:new(1, []),
    counters:add(Count, 1, 1),
    Opts = opts(slow(Count), maps:merge(#{module => Mod, name => slow}, More)),
    {Starts, _} = caller(fun() -> process_flag(trap_exit, true), wasmtime_server:start_link(Opts) end),
    receive {init, _, _} -> ok end,
    {Calls, _} = caller(fun() -> wasmtime_server:call(slow, "count", [], #{timeout => infinity}) end),
    wait_until(fun() -> {ok, #{in_flight := N}} = wasmtime_server:info(slow), N =:= 1 end),
    {Starts, Calls}.

%% While it starts, calls wait no longer than they may, by their own timeout or the server's; those that may
%% are served when it has started, and the name is free when the start has failed.
t_start(_) ->
    {Starts, Calls} = starting(mod(service), #{timeout => 30}),
    [?assertMatch(?WASMTIME_TRAP(timeout), wasmtime_server:call(slow, "count", [], Opts))
     || Opts <- [#{}, #{timeout => 0}, #{timeout => 30}]],
    ?assertEqual(not_running, wasmtime_server:interrupt(slow)),
    wait_until(fun() -> {ok, #{in_flight := N}} = wasmtime_server:info(slow), N =:= 1 end),
    ?assertMatch({ok, #{fresh := 0, calls := 3, failed := 3}}, wasmtime_server:info(slow)),
    ok = wasmtime_server:stop(slow),
    receive {Starts, {error, normal}} -> ok end,
    receive {Calls, {error, _}} -> ok end,
    [begin
         Failed = wasmtime_server:start_link(opts(["trap"], #{name => Name})),
         ?assertMatch(?WASMTIME_TRAP(unreachable), Failed),
         Server = start(["count"], #{name => Name}),
         ?assertEqual({ok, [2]}, wasmtime_server:call(Server, "count", [])),
         ok = wasmtime_server:stop(Server)
     end || Name <- [slow, {global, slow}, {via, global, slow}]].

%% Who called before the start had ended is served as soon as it has.
t_early_calls(_) ->
    Self = self(),
    Init = fun(_) -> Self ! {init, self()}, receive go -> ok end end,
    {Starts, _} = caller(fun() -> {ok, S} = wasmtime_server:start_link(opts(Init, #{name => slow})), unlink(S), S end),
    Maker = receive {init, Pid} -> Pid end,
    Calls = [caller(fun() -> wasmtime_server:call(slow, "count", []) end) || _ <- [1, 2]],
    {Asks, _} = caller(fun() -> wasmtime_server:instance(slow) end),
    wait_until(fun() -> {ok, #{in_flight := N}} = wasmtime_server:info(slow), N =:= 2 end),
    calling(Asks),
    Maker ! go,
    receive {Starts, Server} -> ?assertEqual(whereis(slow), Server) end,
    ?assertEqual([{ok, [1]}, {ok, [2]}], lists:sort([receive {C, Result} -> Result end || {C, _} <- Calls])),
    receive {Asks, {ok, Inst}} -> ?assertEqual({ok, [3]}, wasmtime:call(Inst, "count", [])) end,
    ok = wasmtime_server:stop(slow).

%% The server's own timeout bounds a call also while the server answers nobody, and nothing stays behind; the
%% message of a timeout names the time that was given, not what a wait has left.
t_own_timeout(_) ->
    Server = start([], #{timeout => 300}),
    ok = sys:suspend(Server),
    ?assertMatch(?WASMTIME_TRAP(timeout), wasmtime_server:call(Server, "count", [])),
    {Calls, _} = caller(fun() -> wasmtime_server:call(Server, "spin", []) end),
    timer:sleep(50),
    ok = sys:resume(Server),
    receive {Calls, {error, Error}} ->
        ?assertMatch(#{kind := timeout, message := <<"the call did not end within 300 ms">>}, Error)
    end,
    wait_until(fun() -> {ok, #{in_flight := N}} = wasmtime_server:info(Server), N =:= 0 end),
    ?assertMatch({ok, #{calls := 2, failed := 2}}, wasmtime_server:info(Server)),
    ?assertEqual({ok, [1]}, wasmtime_server:call(Server, "count", [])),
    ?assertEqual([], [M || M <- wasmtime_test:mailbox(), element(1, M) =/= 'DOWN']),
    ok = wasmtime_server:stop(Server).

%% An init that asks its own server for what it has not made yet is told so, and waits for nothing; in a reset
%% it finds the instance before.
t_own_server(_) ->
    Self = self(),
    Init = fun(_) ->
        Asks = [fun(S) -> wasmtime_server:call(S, "count", []) end,
                fun(S) -> wasmtime_server:call(S, "count", [], #{timeout => 60_000}) end,
                fun wasmtime_server:instance/1, fun wasmtime_server:reset/1,
                fun(S) -> wasmtime_server:swap(S, mod(service)) end,
                fun wasmtime_server:info/1, fun wasmtime_server:interrupt/1],
        Self ! {said, [sort(Ask(own)) || Ask <- Asks]},
        ok
    end,
    Server = start(Init, #{name => own}),
    receive {said, First} -> ?assertEqual([server, server, server, server, server, ok, not_running], First) end,
    ok = wasmtime_server:reset(Server),
    receive {said, Second} -> ?assertEqual([ok, ok, ok, server, server, ok, not_running], Second) end,
    ok = wasmtime_server:stop(Server).

sort({error, #{class := call, kind := badarg, key := Key}}) -> Key;
sort({ok, _}) -> ok;
sort(Other) -> Other.

%% Calls that hang on the instance before a reset or swap can be interrupted as well as the present one.
t_interrupt_after_a_change(_) ->
    Server = start([], #{}),
    Spin = fun() ->
        {Pid, _} = caller(fun() -> wasmtime_server:call(Server, "spin", []) end),
        calling(Pid),
        Pid
    end,
    First = Spin(),
    ok = wasmtime_server:reset(Server),
    Second = Spin(),
    ok = wasmtime_server:swap(Server, mod(version(1002))),
    Third = Spin(),
    ?assertEqual(ok, wasmtime_server:interrupt(Server)),
    [receive {Pid, Result} -> ?assertMatch(?WASMTIME_TRAP(interrupt), Result) end || Pid <- [First, Second, Third]],
    wait_until(fun() -> {ok, #{in_flight := N}} = wasmtime_server:info(Server), N =:= 0 end),
    ?assertEqual(not_running, wasmtime_server:interrupt(Server)),
    ?assertEqual({ok, [1002]}, wasmtime_server:call(Server, "version", [])),
    ok = wasmtime_server:stop(Server).
