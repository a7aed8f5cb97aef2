%% Timeouts, interrupts and callers that die: calls end at once, and nothing stays behind.
-module(timeout_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [inst/1, inst/2, caller/1, wait_until/1]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

ticking(Fun) -> #{{"env", "tick"} => Fun}.

%% Milliseconds that it took, and the result.
timed(Fun) ->
    {Micros, Result} = timer:tc(Fun),
    {Micros / 1000, Result}.

%% A guest that never ends, does when its time is up, and not before.
t_wasm_loop(_) ->
    Inst = inst(spin),
    {Ms, Result} = timed(fun() -> wasmtime:call(Inst, <<"spin">>, [], #{timeout => 50}) end),
    ?assertMatch(?WASMTIME_TRAP(timeout), Result),
    ?assert(Ms >= 49),
    ?assert(Ms < 1000),
    ?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"ok">>, [], #{timeout => 1000})),
    ok = wasmtime:destroy(Inst).

%% The deadline is one for the whole call: host calls do not start it again.
t_one_deadline(_) ->
    Inst = inst(loop, ticking(fun(_, []) -> timer:sleep(5), {ok, []} end)),
    {Ms, Result} = timed(fun() -> wasmtime:call(Inst, <<"tick">>, [], #{timeout => 100}) end),
    ?assertMatch(?WASMTIME_TRAP(timeout), Result),
    ?assert(Ms >= 99),
    ?assert(Ms < 1000),
    ?assertEqual([], wasmtime_test:mailbox()),
    ok = wasmtime:destroy(Inst).

%% Inside a slow host function the call times out too; the function's reply is dropped.
t_in_host_call(_) ->
    Inst = inst(loop, ticking(fun(_, []) -> timer:sleep(200), {ok, []} end)),
    ?assertMatch(?WASMTIME_TRAP(timeout),
                 wasmtime:call(Inst, <<"tick_once">>, [], #{timeout => 20})),
    ?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"ok">>, [])),
    ?assertEqual([], wasmtime_test:mailbox()),
    ok = wasmtime:destroy(Inst).

%% No time at all is a timeout, or the answer if that was quicker; it is never lost, though it may
%% pass while the call is being queued.
t_zero(_) ->
    Inst = inst(spin),
    [begin
         ?assertMatch(?WASMTIME_TRAP(timeout),
                      wasmtime:call(Inst, <<"spin">>, [], #{timeout => 0})),
         Result = wasmtime:call(Inst, <<"ok">>, [], #{timeout => 0}),
         ?assert(Result =:= {ok, [1]} orelse element(1, Result) =:= error)
     end || _ <- lists:seq(1, wasmtime_test:rounds(500, 2000, 20_000))],
    ok = wasmtime:destroy(Inst).

%% A call that waits in the queue times out there.
t_queued(_) ->
    Inst = inst(spin),
    {Pid, _} = caller(fun() -> wasmtime:call(Inst, <<"spin">>, []) end),
    running(Inst),
    {Ms, Result} = timed(fun() -> wasmtime:call(Inst, <<"ok">>, [], #{timeout => 50}) end),
    ?assertMatch({error, #{kind := timeout}}, Result),
    ?assert(Ms < 1000),
    ok = wasmtime:interrupt(Inst),
    receive {Pid, First} -> ?assertMatch(?WASMTIME_TRAP(interrupt), First) end,
    ok = wasmtime:destroy(Inst).

running(Inst) ->
    wait_until(fun() ->
        case wasmtime:memory_size(Inst) of
            {error, #{kind := busy}} -> true;
            _ -> false
        end
    end).

%% An interrupt ends the running call and no other.
t_interrupt(_) ->
    Inst = inst(spin),
    ?assertEqual(not_running, wasmtime:interrupt(Inst)),
    {Pid, _} = caller(fun() -> wasmtime:call(Inst, <<"spin">>, []) end),
    running(Inst),
    {Ms, ok} = timed(fun() ->
        ok = wasmtime:interrupt(Inst),
        receive {Pid, Result} -> ?assertMatch(?WASMTIME_TRAP(interrupt), Result), ok end
    end),
    ?assert(Ms < 1000),
    ?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"ok">>, [])),
    ?assertEqual(not_running, wasmtime:interrupt(Inst)),
    ok = wasmtime:destroy(Inst).

%% It reaches a guest that waits for its host.
t_interrupt_in_host_call(_) ->
    Self = self(),
    Inst = inst(loop, ticking(fun(_, []) -> Self ! ticking, timer:sleep(100), {ok, []} end)),
    {Pid, _} = caller(fun() -> wasmtime:call(Inst, <<"tick_once">>, []) end),
    receive ticking -> ok end,
    ?assertEqual(ok, wasmtime:interrupt(Inst)),
    receive {Pid, Result} -> ?assertMatch(?WASMTIME_TRAP(interrupt), Result) end,
    ok = wasmtime:destroy(Inst).

%% And one that sleeps in WASI.
t_interrupt_in_sleep(_) ->
    sleeping(fun(Inst, Pid) ->
        ok = wasmtime:interrupt(Inst),
        receive {Pid, Result} -> ?assertMatch(?WASMTIME_TRAP(interrupt), Result) end
    end).

%% A sleep in WASI also ends with the call's time.
t_timeout_in_sleep(_) ->
    Inst = inst(wasi, #{wasi => #{}}),
    {Ms, Result} = timed(fun() -> sleep(Inst, 60_000, #{timeout => 50}) end),
    ?assertMatch(?WASMTIME_TRAP(timeout), Result),
    ?assert(Ms < 1000),
    {Slept, {ok, [0]}} = timed(fun() -> sleep(Inst, 20, #{}) end),
    ?assert(Slept >= 19),
    ok = wasmtime:destroy(Inst).

%% Sleeps through poll_oneoff: one subscription to the monotonic clock.
sleep(Inst, Ms, Opts) ->
    Nanos = Ms * 1_000_000,
    ok = wasmtime:write_memory(Inst, 0, <<0:64, 0, 0:56, 1:32/little, 0:32, Nanos:64/little, 0:64,
                                          0:16, 0:48>>),
    wasmtime:call(Inst, <<"poll_oneoff">>, [0, 256, 1, 512], Opts).

sleeping(Fun) ->
    Inst = inst(wasi, #{wasi => #{}}),
    {Pid, _} = caller(fun() -> sleep(Inst, 60_000, #{}) end),
    running(Inst),
    Fun(Inst, Pid),
    ok = wasmtime:destroy(Inst).

%% A dead caller's call is interrupted: the instance is free for others.
t_dead_caller(_) ->
    [begin
         Inst = inst(loop, ticking(fun(_, []) -> timer:sleep(60_000), {ok, []} end)),
         {Pid, Monitor} = caller(fun() -> wasmtime:call(Inst, Export, []) end),
         running(Inst),
         exit(Pid, kill),
         receive {'DOWN', Monitor, _, _, killed} -> ok end,
         ?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"ok">>, [], #{timeout => 5000})),
         ok = wasmtime:destroy(Inst)
     end || Export <- [<<"spin">>]],
    Inst = inst(loop, ticking(fun(_, []) -> timer:sleep(60_000), {ok, []} end)),
    {Pid, Monitor} = caller(fun() -> wasmtime:call(Inst, <<"tick_once">>, []) end),
    wait_until(fun() -> process_info(Pid, current_function) =:=
                            {current_function, {timer, sleep, 1}} end),
    exit(Pid, kill),
    receive {'DOWN', Monitor, _, _, killed} -> ok end,
    ?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"ok">>, [], #{timeout => 5000})),
    ok = wasmtime:destroy(Inst).

%% Queued calls of a dead process are dropped: they do not run.
t_dead_caller_in_queue(_) ->
    Inst = inst(loop, ticking(fun(_, []) -> receive go -> {ok, []} end end)),
    {First, _} = caller(fun() -> wasmtime:call(Inst, <<"tick_once">>, []) end),
    wasmtime_test:calling(First),
    {Dead, Monitor} = caller(fun() -> wasmtime:call(Inst, <<"spin">>, []) end),
    wasmtime_test:calling(Dead),
    exit(Dead, kill),
    receive {'DOWN', Monitor, _, _, killed} -> ok end,
    First ! go,
    receive {First, Result} -> ?assertEqual({ok, []}, Result) end,
    ?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"ok">>, [], #{timeout => 5000})),
    ok = wasmtime:destroy(Inst).

%% Destroy ends a running call, and every queued one.
t_destroy_while_running(_) ->
    Inst = inst(spin),
    Callers = [caller(fun() -> wasmtime:call(Inst, <<"spin">>, []) end) || _ <- [1, 2, 3]],
    running(Inst),
    timer:sleep(20),
    ok = wasmtime:destroy(Inst),
    [receive {Pid, Result} -> ?assertMatch({error, #{kind := destroyed}}, Result) end
     || {Pid, _} <- Callers],
    ok = wasmtime:destroy(Inst).

t_destroy_in_sleep(_) ->
    sleeping(fun(Inst, Pid) ->
        {Ms, ok} = timed(fun() -> wasmtime:destroy(Inst) end),
        ?assert(Ms < 1000),
        receive {Pid, Result} -> ?assertMatch({error, #{kind := destroyed}}, Result) end
    end).

%% Two processes destroy at once: both return when it is done.
t_destroy_twice_at_once(_) ->
    Inst = inst(spin),
    {Pid, _} = caller(fun() -> wasmtime:call(Inst, <<"spin">>, []) end),
    running(Inst),
    Callers = [caller(fun() -> wasmtime:destroy(Inst) end) || _ <- [1, 2]],
    [receive {P, Result} -> ?assertEqual(ok, Result) end || {P, _} <- Callers],
    receive {Pid, Result} -> ?assertMatch({error, #{kind := destroyed}}, Result) end.

%% Many timeouts, some of which meet the result: nothing is left in the mailbox, and every answer is
%% one or the other.
t_races(_) ->
    Inst = inst(loop, ticking(fun(_, []) -> timer:sleep(1), {ok, []} end)),
    Results = [wasmtime:call(Inst, <<"tick_once">>, [], #{timeout => rand:uniform(4) - 1})
               || _ <- lists:seq(1, wasmtime_test:rounds(50, 300, 3000))],
    [case Result of
         {ok, []} -> ok;
         _ -> ?assertMatch({error, #{kind := timeout}}, Result)
     end || Result <- Results],
    timer:sleep(20),
    ?assertEqual([], wasmtime_test:mailbox()),
    ok = wasmtime:destroy(Inst).

%% Callers of one instance whose deadlines fire while they wait for their turn: each gets its answer,
%% and nothing is left behind.
t_turns_race(_) ->
    Inst = inst(loop, ticking(fun(_, []) -> {ok, []} end)),
    Calls = fun(Name) ->
        [wasmtime:call(Inst, Name, [], #{timeout => rand:uniform(3) - 1})
         || _ <- lists:seq(1, wasmtime_test:rounds(300, 1000, 10_000))]
    end,
    Callers = [caller(fun() -> Calls(Name), done end)
               || Name <- [<<"spin">>, <<"ok">>, <<"ok">>, <<"tick_once">>]],
    [receive {Pid, Done} -> ?assertEqual(done, Done) after 60_000 -> error(stuck) end
     || {Pid, _} <- Callers],
    ?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"ok">>, [], #{timeout => 5000})),
    ok = wasmtime:destroy(Inst),
    wait_until(fun() -> maps:get(stores, wasmtime_nif:live()) =:= 0 end).

%% A caller that stays in its host function after its deadline does not hold up the others.
t_host_function_outstays(_) ->
    Inst = inst(loop, ticking(fun(_, []) -> timer:sleep(2000), {ok, []} end)),
    {Slow, _} = caller(fun() -> wasmtime:call(Inst, <<"tick_once">>, [], #{timeout => 50}) end),
    wasmtime_test:calling(Slow),
    {Ms, Result} = timed(fun() -> wasmtime:call(Inst, <<"ok">>, []) end),
    ?assertEqual({ok, [1]}, Result),
    ?assert(Ms < 1500, Ms),
    receive {Slow, Late} -> ?assertMatch(?WASMTIME_TRAP(timeout), Late) end,
    ok = wasmtime:destroy(Inst).

%% Many processes with guests that never end: every timeout holds.
t_many_loops(_) ->
    Mod = wasmtime_test:mod(spin),
    Callers = [caller(fun() ->
        Inst = inst(Mod, #{}),
        Timed = timed(fun() -> wasmtime:call(Inst, <<"spin">>, [], #{timeout => 100}) end),
        ok = wasmtime:destroy(Inst),
        Timed
    end) || _ <- lists:seq(1, 16)],
    [receive
         {Pid, {Ms, Result}} ->
             ?assertMatch(?WASMTIME_TRAP(timeout), Result),
             ?assert(Ms < 5000)
     end || {Pid, _} <- Callers].

%% A start section that never ends does when its process dies; the schedulers stay free.
t_endless_start(_) ->
    Mod = wasmtime_test:mod({wat, "(module (func $f (loop $l (br $l))) (start $f))"}, #{}),
    {Pid, Monitor} = caller(fun() -> wasmtime_test:instantiate(Mod) end),
    wasmtime_test:calling(Pid),
    exit(Pid, kill),
    receive {'DOWN', Monitor, _, _, killed} -> ok end,
    wait_until(fun() -> maps:get(threads_running, wasmtime_nif:live()) =:= 0 end).
