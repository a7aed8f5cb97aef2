%% wasmtime_pool: a fresh instance for each request, never more at once than `size', in the order of
%% coming; and whoever dies at whatever moment gives everything back.
-module(pool_server_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-include("../src/wasmtime_pool.hrl").
-import(wasmtime_test, [caller/1, wait_until/1]).
-import(wasmtime_pool_test, [instance/1, start/1, start/2, stats/1, until/3, holders/2, go/1, settled_after/1]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

init_per_testcase(_, Config) ->
    process_flag(trap_exit, true),
    Config.

end_per_testcase(_, _) -> process_flag(trap_exit, false).

%% ---- requests -------------------------------------------------------------------------------

%% Each request gets an instance of its own, in the calling process, and it is gone afterwards.
t_fresh(_) ->
    Self = self(),
    Pool = start(fun(X) -> Self = self(), X + 1 end, #{}),
    ?assertEqual([{ok, [1]}, {ok, [1]}], [wasmtime_pool:request(Pool, "count", []) || _ <- [1, 2]]),
    ?assertEqual({ok, [6]}, wasmtime_pool:request(Pool, "ask", [5])),
    {Inst, Sum} = wasmtime_pool:run(Pool, fun(I) ->
        {ok, [1]} = wasmtime:call(I, "count", []),
        {ok, [N]} = wasmtime:call(I, "count", []),
        {I, N}
    end),
    ?assertEqual(2, Sum),
    ?assertMatch(?WASMTIME_ERROR(call, destroyed), wasmtime:call(Inst, "count", [])),
    ?assertMatch(#{in_flight := 0, done := 4, failed := 0}, stats(Pool)),
    ?assertEqual([], wasmtime_test:mailbox()),
    ok = wasmtime_pool:stop(Pool).

%% Errors of the guest and of the arguments are those of a call; what a function raises comes through.
t_failures(_) ->
    Pool = start(#{}),
    Request = fun(Name, Args, Opts) -> wasmtime_pool:request(Pool, Name, Args, Opts) end,
    ?assertMatch(?WASMTIME_TRAP(unreachable), Request("trap", [], #{})),
    ?assertMatch(?WASMTIME_TRAP(timeout), Request("spin", [], #{timeout => 20})),
    ?assertMatch(?WASMTIME_ERROR(call, unknown_export), Request("no", [], #{})),
    ?assertMatch(?WASMTIME_ERROR(call, badarity), Request("count", [1], #{})),
    ?assertMatch(?WASMTIME_ERROR(call, badarg), Request("count", no_list, #{})),
    ?assertMatch(?WASMTIME_ERROR(call, badarg), Request(<<0>>, [], #{})),
    ?assertMatch(?WASMTIME_ERROR(pool, badarg), wasmtime_pool:run(Pool, fun() -> ok end)),
    [?assertMatch({error, #{class := pool, kind := badarg, key := Key}}, Request("count", [], Opts))
     || {Key, Opts} <- [{timeout, #{timeout => x}}, {queue_timeout, #{queue_timeout => -1}},
                        {fuel, #{fuel => x}}, {x, #{x => 1}}, {options, []}]],
    ?assertMatch(?WASMTIME_BADARG(timeout), wasmtime_pool:run(Pool, fun(_) -> ok end, #{timeout => 1})),
    ?assertEqual({error, mine}, wasmtime_pool:run(Pool, fun(_) -> {error, mine} end)),
    ?assertError(oops, wasmtime_pool:run(Pool, fun(_) -> error(oops) end)),
    ?assertExit(oops, wasmtime_pool:run(Pool, fun(_) -> exit(oops) end)),
    ?assertThrow(oops, wasmtime_pool:run(Pool, fun(_) -> throw(oops) end)),
    ?assertMatch(#{in_flight := 0, done := 0, failed := 9, overloaded := 0,
                   latency := #{count := 9}, queue := #{count := 9}}, stats(Pool)),
    ok = wasmtime_pool:stop(Pool).

%% A pool that cannot make an instance says why once the time to wait is over, and the place is free again.
t_no_instance(_) ->
    Pooled = wasmtime_test:mod(service, wasmtime_test:pool(#{instances => 2})),
    Pool = start(#{module => Pooled, size => 2}),
    {ok, One} = wasmtime:instantiate(Pooled, instance(fun(X) -> X end)),
    {ok, Two} = wasmtime:instantiate(Pooled, instance(fun(X) -> X end)),
    [?assertMatch(?WASMTIME_ERROR(pool, pool_exhausted), wasmtime_pool:request(Pool, "count", [], Opts))
     || Opts <- [#{queue_timeout => 0}, #{queue_timeout => 10}, #{timeout => 10}]],
    %% Room that comes in time is as good as a place that does, however long that takes.
    {Waits, _} = caller(fun() -> wasmtime_pool:request(Pool, "count", [], #{queue_timeout => infinity}) end),
    until(Pool, 1, 0),
    timer:sleep(50),
    ok = wasmtime:destroy(One),
    receive {Waits, Result} -> ?assertEqual({ok, [1]}, Result) end,
    {ok, Three} = wasmtime:instantiate(Pooled, instance(fun(X) -> X end)),
    %% Nobody waits for room in a pool that has ended.
    {Late, _} = caller(fun() -> wasmtime_pool:request(Pool, "count", [], #{queue_timeout => infinity}) end),
    until(Pool, 1, 0),
    ?assertEqual({ok, 1}, wasmtime_pool:drain(Pool, 0)),
    receive {Late, Refused} -> ?assertMatch(?WASMTIME_ERROR(pool, closed), Refused) end,
    [ok = wasmtime:destroy(Inst) || Inst <- [Two, Three]],
    ?assertMatch(#{in_flight := 0, failed := 4, done := 1}, stats(Pool)),
    ok = wasmtime_pool:stop(Pool).

%% What an instance streams goes to the process that makes the request, wherever the pool was started.
t_streams(_) ->
    Instance = wasmtime_test:with_runner(#{{"env", "host"} => fun(_, []) -> {ok, []} end}),
    Pool = start(#{module => wasmtime_test:mod(channel), instance => Instance}),
    Got = wasmtime_test:in_process(fun() ->
        wasmtime_pool:run(Pool, fun(Inst) ->
            ok = wasmtime:send(Inst, <<"hello">>),
            ok = wasmtime:close(Inst),
            {ok, [1]} = wasmtime:call(Inst, "echo", []),
            Ref = wasmtime:ref(Inst),
            receive {wasmtime_stream, Ref, channel, Bytes} -> Bytes after 10_000 -> nothing end
        end)
    end),
    ?assertEqual(<<"hello">>, Got),
    ok = wasmtime_pool:stop(Pool).

%% ---- bounds ---------------------------------------------------------------------------------

%% However many callers there are, no more than `size' run at once, all are served, and each by an
%% instance of its own.
t_bounded(_) ->
    [begin
         Now = atomics:new(2, []),
         Pool = start(fun(X) -> peak(Now), X end, #{size => Size, queue_timeout => infinity, max_queue => 1000}),
         Each = wasmtime_test:rounds(20, 50, 1000),
         Callers = [caller(fun() ->
             [{ok, [I]} = wasmtime_pool:request(Pool, "ask", [I]) || I <- lists:seq(1, Each)],
             ok
         end) || _ <- lists:seq(1, 20)],
         [receive {Pid, Result} -> ?assertEqual(ok, Result) end || {Pid, _} <- Callers],
         ?assert(atomics:get(Now, 2) =< Size),
         Done = 20 * Each,
         ?assertMatch(#{in_flight := 0, waiting := 0, done := Done, overloaded := 0}, stats(Pool)),
         ok = wasmtime_pool:stop(Pool)
     end || Size <- [1, 3]].

peak(Now) ->
    N = atomics:add_get(Now, 1, 1),
    Most = atomics:get(Now, 2),
    _ = N > Most andalso atomics:compare_exchange(Now, 2, Most, N),
    erlang:yield(),
    atomics:sub(Now, 1, 1).

%% Those that wait are served in the order of their coming, and a newcomer does not pass them by.
t_order(_) ->
    Self = self(),
    Pool = start(#{size => 1}),
    [Holder] = holders(Pool, 1),
    Waiting = [begin
                   {Pid, _} = caller(fun() -> wasmtime_pool:run(Pool, fun(_) -> Self ! {turn, N}, ok end) end),
                   until(Pool, 1, N),
                   Pid
               end || N <- lists:seq(1, 10)],
    [held] = go([Holder]),
    [receive {Pid, Result} -> ?assertEqual(ok, Result) end || Pid <- Waiting],
    ?assertEqual([{turn, N} || N <- lists:seq(1, 10)], [T || {turn, _} = T <- wasmtime_test:mailbox()]),
    ok = wasmtime_pool:stop(Pool).

%% The queue takes `max_queue' and not one more; the one too many is told at once and nothing ran.
t_queue_full(_) ->
    [begin
         Pool = start(#{size => 2, max_queue => Max, queue_timeout => infinity}),
         Holders = holders(Pool, 2 + Max),
         until(Pool, 2, Max),
         ?assertMatch(?WASMTIME_ERROR(pool, overload), wasmtime_pool:request(Pool, "count", [])),
         ?assertMatch(#{in_flight := 2, waiting := Max, overloaded := 1, done := 0}, stats(Pool)),
         ?assertEqual([held || _ <- Holders], go(Holders)),
         ?assertEqual({ok, [1]}, wasmtime_pool:request(Pool, "count", [])),
         ok = wasmtime_pool:stop(Pool)
     end || Max <- [0, 1, 5]].

%% Who finds no place in time is told so, by the pool's deadline, its own, or that of the whole request.
t_queue_timeout(_) ->
    Pool = start(#{size => 1, queue_timeout => 30}),
    Holders = holders(Pool, 1),
    Requests = [#{}, #{queue_timeout => 0}, #{queue_timeout => 1}, #{timeout => 10, queue_timeout => infinity},
                #{timeout => 0}],
    [?assertMatch(?WASMTIME_ERROR(pool, overload), wasmtime_pool:request(Pool, "count", [], Opts))
     || Opts <- Requests],
    ?assertMatch(?WASMTIME_ERROR(pool, overload),
                 wasmtime_pool:run(Pool, fun(_) -> ok end, #{queue_timeout => 5})),
    until(Pool, 1, 0),
    ?assertMatch(#{overloaded := 6}, stats(Pool)),
    %% A long wait that ends in time is none of it.
    {Pid, _} = caller(fun() -> wasmtime_pool:request(Pool, "count", [], #{queue_timeout => infinity}) end),
    until(Pool, 1, 1),
    [held] = go(Holders),
    receive {Pid, Result} -> ?assertEqual({ok, [1]}, Result) end,
    ?assertMatch(#{in_flight := 0, waiting := 0, overloaded := 6, done := 2}, stats(Pool)),
    ?assertEqual([], [M || M <- wasmtime_test:mailbox(), element(1, M) =/= 'DOWN']),
    ok = wasmtime_pool:stop(Pool).

%% A request bounds its own wait, also while the pool's process answers nobody; whatever that does later, no
%% place is lost.
t_timeout_of_a_suspended_pool(_) ->
    Pool = start(#{size => 1, queue_timeout => 30}),
    [begin
         Holders = holders(Pool, 1),
         ok = sys:suspend(Pool),
         [?assertMatch(?WASMTIME_ERROR(pool, overload), wasmtime_pool:request(Pool, "count", [], Opts))
          || Opts <- [#{}, #{queue_timeout => 1}, #{timeout => 10, queue_timeout => infinity}]],
         _ = Before andalso go(Holders),
         ok = sys:resume(Pool),
         _ = Before orelse go(Holders),
         until(Pool, 0, 0),
         ?assertEqual({ok, [1]}, wasmtime_pool:request(Pool, "count", [], #{queue_timeout => 5000}))
     end || Before <- [true, false]],
    ok = wasmtime_pool:stop(Pool).

%% What the message of a timeout names is the time that the request was given, not what its wait left.
t_timeout_message(_) ->
    Pool = start(#{size => 1, timeout => 5000}),
    [Holder] = holders(Pool, 1),
    {Pid, _} = caller(fun() -> wasmtime_pool:request(Pool, "spin", [], #{timeout => 1500}) end),
    until(Pool, 1, 1),
    timer:sleep(20),
    [held] = go([Holder]),
    receive {Pid, {error, #{kind := timeout, message := Message}}} ->
        ?assertEqual(<<"the call did not end within 1500 ms">>, Message)
    end,
    ok = wasmtime_pool:stop(Pool).

%% The pool's `timeout' bounds requests that name none, and not functions.
t_timeout(_) ->
    Pool = start(#{timeout => 30}),
    ?assertMatch(?WASMTIME_TRAP(timeout), wasmtime_pool:request(Pool, "spin", [])),
    ?assertEqual(ok, wasmtime_pool:run(Pool, fun(_) -> timer:sleep(60), ok end)),
    ok = wasmtime_pool:stop(Pool).

%% Fuel is a request's, too.
t_fuel(_) ->
    Pool = start(#{module => wasmtime_test:mod(service, #{fuel => true})}),
    ?assertMatch(?WASMTIME_TRAP(out_of_fuel), wasmtime_pool:request(Pool, "spin", [], #{fuel => 1000})),
    ok = wasmtime_pool:stop(Pool).

%% ---- deaths ---------------------------------------------------------------------------------

%% A caller that is killed while it runs (in the guest, in a host function, in its own code) or waits gives
%% its place to the next; its instance is gone, even if others have the handle.
t_callers_die(_) ->
    Self = self(),
    Pool = start(fun(_) -> timer:sleep(infinity) end, #{size => 1, queue_timeout => infinity}),
    Works = [fun(I) -> wasmtime:call(I, "spin", []) end, fun(I) -> wasmtime:call(I, "ask", [1]) end,
             fun(_) -> timer:sleep(infinity) end],
    [begin
         Running = spawn(fun() -> wasmtime_pool:run(Pool, fun(I) -> Self ! {inst, I}, Work(I) end) end),
         Inst = receive {inst, I} -> I end,
         Waiting = spawn(fun() -> wasmtime_pool:run(Pool, fun(_) -> ok end) end),
         until(Pool, 1, 1),
         {Next, _} = caller(fun() -> wasmtime_pool:request(Pool, "count", []) end),
         until(Pool, 1, 2),
         exit(Waiting, kill),
         until(Pool, 1, 1),
         exit(Running, kill),
         receive {Next, Result} -> ?assertEqual({ok, [1]}, Result) end,
         ?assertMatch(?WASMTIME_ERROR(call, destroyed), wasmtime:call(Inst, "count", [])),
         until(Pool, 0, 0)
     end || Work <- Works],
    ok = wasmtime_pool:stop(Pool).

%% Without anybody waiting the place of a dead caller comes back as well.
t_death_without_a_queue(_) ->
    Pool = start(#{size => 2}),
    Pids = holders(Pool, 2),
    [exit(Pid, kill) || Pid <- Pids],
    until(Pool, 0, 0),
    ok = wasmtime_pool:stop(Pool).

%% Where a caller is killed before its row names the instance, its place is free sooner than the room: who
%% gets the place waits for that.
t_room_of_a_dead_caller(_) ->
    Mod = wasmtime_test:mod(service, wasmtime_test:pool(#{instances => 1})),
    Pool = start(#{module => Mod, size => 1, queue_timeout => infinity}),
    {ok, #pool{words = Words, table = Table, template = Template}} = wasmtime_pool_run:find(Pool),
    Holds = spawn(fun() -> receive {inst, Inst} -> timer:sleep(100), wasmtime:destroy(Inst) end end),
    {Victim, Monitor} = spawn_monitor(fun() ->
        Id = wasmtime_pool_ticket:next(Words),
        true = ets:insert(Table, {Id, self(), none}),
        {ok, _} = wasmtime_pool_ticket:take(Words, 1, Id),
        {ok, Inst} = wasmtime:instantiate(Template),
        Holds ! {inst, Inst},
        exit(self(), kill)
    end),
    receive {'DOWN', Monitor, process, Victim, Reason} -> ?assertEqual(killed, Reason) end,
    ?assertEqual({ok, [1]}, wasmtime_pool:request(Pool, "count", [])),
    ok = wasmtime_pool:stop(Pool).

%% A module with exactly as many instances as there are places suffices, also for those who come after a
%% caller that was killed at any moment, say between its instance and its row.
t_death_in_a_full_pool(_) ->
    Mod = wasmtime_test:mod(service, wasmtime_test:pool(#{instances => 2})),
    Pool = start(#{module => Mod, size => 2, queue_timeout => infinity}),
    Count = fun() -> {ok, [1]} = wasmtime_pool:request(Pool, "count", []) end,
    Killer = fun() ->
        Victim = spawn(fun() -> [Count() || _ <- lists:seq(1, 1000)] end),
        [erlang:yield() || _ <- lists:seq(1, rand:uniform(30))],
        exit(Victim, kill),
        Count()
    end,
    Each = wasmtime_test:rounds(100, 300, 5000),
    Killers = [caller(fun() -> [Killer() || _ <- lists:seq(1, Each)], done end) || _ <- [1, 2]],
    [receive {Pid, Result} -> ?assertEqual(done, Result);
             {'DOWN', Monitor, _, _, Reason} when Reason =/= normal -> error(Reason)
     end || {Pid, Monitor} <- Killers],
    until(Pool, 0, 0),
    ok = wasmtime_pool:stop(Pool).

%% Hundreds of callers are killed at random moments: all places come back, all numbers go to zero, and no
%% native object is left.
t_storm(_) ->
    Mod = wasmtime_test:mod(service, wasmtime_test:pool(#{instances => 16})),
    settled_after(fun() ->
        Ask = fun(X) -> timer:sleep(X), X end,
        Pool = start(Ask, #{module => Mod, size => 4, max_queue => 20, queue_timeout => 50}),
        [storm(Pool, N) || N <- lists:seq(1, wasmtime_test:rounds(600, 2000, 30_000))],
        until(Pool, 0, 0),
        %% Every place can be taken again.
        Holders = holders(Pool, 4),
        until(Pool, 4, 0),
        ?assertEqual([held, held, held, held], go(Holders)),
        until(Pool, 0, 0),
        ok = wasmtime_pool:stop(Pool)
    end),
    ?assertMatch(#{verify_failures := 0}, wasmtime_test:restored(Mod)).

%% One caller, killed at once, a little later, or in a while; or not at all.
storm(Pool, N) ->
    {Name, Args} = element(rand:uniform(4), {{"count", []}, {"spin", []}, {"ask", [1]}, {"trap", []}}),
    Pid = spawn(fun() -> wasmtime_pool:request(Pool, Name, Args, #{timeout => rand:uniform(8)}) end),
    case rand:uniform(5) of
        1 -> exit(Pid, kill);
        2 -> erlang:yield(), exit(Pid, kill);
        3 -> burn(rand:uniform(2000)), exit(Pid, kill);
        4 -> erlang:send_after(rand:uniform(6), spawn(fun() -> receive die -> exit(Pid, kill) end end), die);
        5 -> ok
    end,
    N rem 10 =:= 0 andalso timer:sleep(1).

burn(0) -> ok;
burn(N) -> burn(N - 1).
