%% Strains of many processes: they call, wait, send, and die at any moment.
%% Rule: as in soak_strains.
-module(soak_crowds).

-export([deaths/1, calls/1, echo/1, storm/1, pool/1, server/1]).

-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [inst/2, one/1, caller/1]).

%% ---- callers and hosts ----------------------------------------------------------------------

%% Callers and hosts that are killed wherever they are.
deaths(#{host := Mod, loop := Loop}) ->
    [dies(Mod, Loop, Way) || Way <- [caller, host, owner, queued], _ <- lists:seq(1, 10)].

dies(Mod, _, caller) ->
    Inst = inst(Mod, one(fun(_, [X]) -> {ok, [X]} end)),
    killed(fun() -> forever(fun() -> wasmtime:call(Inst, <<"sum">>, [20]) end) end),
    works(Inst);
dies(Mod, _, host) ->
    Host = host_process_SUITE:host(),
    Inst = inst(Mod, (one(fun(_, [X]) -> {ok, [X]} end))#{host => Host}),
    ok = host_process_SUITE:tell(Host, Inst),
    {Pid, _} = caller(fun() -> wasmtime:call(Inst, <<"sum">>, [1_000_000]) end),
    a_moment(),
    exit(Host, kill),
    Result = receive {Pid, Ended} -> Ended end,
    ?assertMatch({error, _}, Result),
    _ = works(Inst),
    Result;
dies(_, Loop, owner) ->
    killed(fun() ->
        Inst = inst(Loop, #{{"env", "tick"} => fun(_, []) -> {ok, []} end}),
        wasmtime:call(Inst, lists:nth(rand:uniform(2), [<<"spin">>, <<"tick">>]), [])
    end);
dies(_, Loop, queued) ->
    Inst = inst(Loop, #{{"env", "tick"} => fun(_, []) -> {ok, []} end}),
    {Pid, _} = caller(fun() -> wasmtime:call(Inst, <<"tick">>, []) end),
    killed(fun() -> wasmtime:call(Inst, <<"spin">>, []) end),
    interrupt(Inst, Pid).

%% Interrupts until the call ended: it may not run yet.
interrupt(Inst, Pid) ->
    _ = wasmtime:interrupt(Inst),
    receive {Pid, Result} -> Result after 1 -> interrupt(Inst, Pid) end.

works(Inst) ->
    ?assertEqual({ok, [14]}, wasmtime:call(Inst, <<"double">>, [7])),
    wasmtime:destroy(Inst).

killed(Fun) ->
    {Pid, Monitor} = spawn_monitor(Fun),
    a_moment(),
    exit(Pid, kill),
    receive {'DOWN', Monitor, process, Pid, killed} -> ok end.

forever(Fun) -> Fun(), forever(Fun).

%% From nothing to two milliseconds, often short.
a_moment() ->
    Until = erlang:monotonic_time(microsecond) + trunc(math:exp(rand:uniform() * math:log(2000))),
    wait(Until).

wait(Until) ->
    case erlang:monotonic_time(microsecond) < Until of
        true -> erlang:yield(), wait(Until);
        false -> ok
    end.

%% Calls that nobody waits for: awaited, timed out, left.
calls(#{host := Mod}) ->
    Inst = inst(Mod, one(fun(_, [X]) -> {ok, [X]} end)),
    Calls = [element(2, wasmtime:call_async(Inst, <<"sum">>, [rand:uniform(50)])) || _ <- lists:seq(1, 20)],
    Results = [wasmtime:await(Inst, Call, rand:uniform(20)) || Call <- Calls],
    {ok, Left} = wasmtime:call_async(Inst, <<"sum">>, [1000]),
    true = is_integer(Left),
    ok = wasmtime:destroy(Inst),
    Results.

%% ---- streams --------------------------------------------------------------------------------

%% Every message comes back, once, in order.
echo(#{channel := Mod}) ->
    Inst = inst(Mod, stream_SUITE:with_host(#{})),
    Ref = wasmtime:ref(Inst),
    {Pid, _} = caller(fun() -> wasmtime:call(Inst, <<"echo">>, []) end),
    Messages = [<<N:32, (binary:copy(<<"m">>, rand:uniform(1000)))/binary>> || N <- lists:seq(1, 300)],
    [ok = wasmtime:send(Inst, Message) || Message <- Messages],
    ok = wasmtime:close(Inst),
    ?assertEqual(Messages, [receive {wasmtime_stream, Ref, channel, Bytes} -> Bytes end || _ <- Messages]),
    receive {Pid, Result} -> ?assertEqual({ok, [300]}, Result) end,
    Closed = wasmtime:send(Inst, <<"late">>),
    ok = wasmtime:destroy(Inst),
    [Closed | [ok || _ <- Messages]].

%% Receivers die, inboxes fill, instances go while their guests read.
storm(#{channel := Mod}) ->
    {Receiver, _} = spawn_monitor(fun stream_storm_SUITE:drain/0),
    Inst = inst(Mod, stream_SUITE:with_host(#{stream => Receiver, inbox_limit => 2000})),
    {Pid, _} = caller(fun() -> wasmtime:call(Inst, <<"echo">>, []) end),
    Sent = [wasmtime:send(Inst, binary:copy(<<"s">>, rand:uniform(1500))) || _ <- lists:seq(1, 50)],
    exit(Receiver, kill),
    a_moment(),
    ok = wasmtime:destroy(Inst),
    receive {Pid, Result} -> [Result | Sent] end.

%% ---- servers and pools ----------------------------------------------------------------------

%% A pool that is swapped under a crowd, some of whom are killed; too small for all; drained; stopped.
pool(_) ->
    process_flag(trap_exit, true),
    Pool = wasmtime_pool_test:start(#{size => 2, max_queue => 5, queue_timeout => 20, drain_timeout => 10}),
    Names = ["count", "count", "count", "trap", "spin", "ask"],
    Request = fun() ->
        Name = lists:nth(rand:uniform(length(Names)), Names),
        wasmtime_pool:request(Pool, Name, [1 || Name =:= "ask"], #{timeout => 10})
    end,
    Callers = [caller(fun() -> [Request() || _ <- lists:seq(1, 5)] end) || _ <- lists:seq(1, 10)],
    [begin a_moment(), exit(Pid, kill) end || {Pid, _} <- lists:sublist(Callers, 3)],
    Swapped = wasmtime_pool:swap(Pool, wasmtime_test:mod(wasmtime_pool_test:version(1005))),
    Results = lists:append([caller_result(Caller) || Caller <- Callers]),
    Drained = wasmtime_pool:drain(Pool),
    Closed = wasmtime_pool:request(Pool, "count", []),
    ok = wasmtime_pool:stop(Pool),
    [Swapped, Drained, Closed | Results].

caller_result({Pid, Monitor}) ->
    receive
        {Pid, Results} -> Results;
        {'DOWN', Monitor, process, Pid, killed} -> []
    end.

%% A server that is called, traps, starts afresh, and is killed with calls under way.
server(_) ->
    process_flag(trap_exit, true),
    Server = server_SUITE:start(#{}),
    ?assertEqual({ok, [1]}, server_SUITE:count(Server)),
    Trap = wasmtime_server:call(Server, "trap", []),
    Spin = wasmtime_server:call(Server, "spin", [], #{timeout => 3}),
    ok = wasmtime_server:reset(Server),
    ?assertEqual({ok, [1]}, server_SUITE:count(Server)),
    {Pid, _} = caller(fun() -> catch wasmtime_server:call(Server, "spin", []) end),
    a_moment(),
    exit(Server, kill),
    receive {Pid, Ended} -> [Trap, Spin, Ended] end.
