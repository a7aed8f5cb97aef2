%% A process of its own serves the guest's host calls: from any caller, with the same guarantees as the
%% caller itself, and its death ends what waits for it at once.
-module(host_process_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [inst/2, one/1, caller/1]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

%% A host that serves the instances it is told of, and says so.
host() -> spawn(fun serve_all/0).

serve_all() -> serve(#{}).

serve(Insts) ->
    receive
        {serve, Inst, From} ->
            From ! {self(), serving},
            serve(Insts#{wasmtime:ref(Inst) => Inst});
        {wasmtime_host_call, Ref, _, _, _} = Message ->
            ok = wasmtime:handle_host_call(maps:get(Ref, Insts), Message),
            serve(Insts);
        {run, Fun} ->
            Fun(),
            serve(Insts);
        {mailbox, From} ->
            From ! {self(), mailbox()},
            serve(Insts)
    end.

tell(Host, Inst) ->
    Host ! {serve, Inst, self()},
    receive {Host, serving} -> ok end.

%% Runs Test(Inst, Host) with an instance of host.wat whose `one' is Fun, run by Host.
with(Fun, Test) -> with(Fun, #{}, Test).

with(Fun, Opts, Test) ->
    Host = host(),
    Inst = inst(host, maps:merge((one(Fun))#{host => Host, host_timeout => infinity}, Opts)),
    ok = tell(Host, Inst),
    try Test(Inst, Host)
    after
        exit(Host, kill),
        ok = wasmtime:destroy(Inst)
    end.

%% What the library left in the mailbox.
mailbox() -> [M || M <- wasmtime_test:mailbox(), element(1, M) =/= 'DOWN'].

call(Inst, X) -> wasmtime:call(Inst, <<"one">>, [X]).

down(Pid) ->
    Monitor = monitor(process, Pid),
    receive {'DOWN', Monitor, _, _, _} -> ok end.

%% The function runs in the host, whoever calls; nothing reaches the caller's mailbox.
t_served_by_host(_) ->
    Self = self(),
    with(fun(_, [X]) -> Self ! {served_by, self(), X}, {ok, [X + 1]} end,
         fun(Inst, Host) ->
             ?assertEqual({ok, [6]}, call(Inst, 5)),
             receive {served_by, By, 5} -> ?assertEqual(Host, By) end,
             {Pid, _} = caller(fun() -> {call(Inst, 7), mailbox()} end),
             receive {Pid, Got} -> ?assertEqual({{ok, [8]}, []}, Got) end,
             receive {served_by, ByToo, 7} -> ?assertEqual(Host, ByToo) end,
             ?assertEqual({ok, [2.5, 1]}, wasmtime:call(Inst, <<"swap">>, [1, 2.5])),
             ?assertEqual([], mailbox())
         end).

%% Thousands of host calls in one call.
t_many(_) ->
    N = wasmtime_test:rounds(1000, 5000, 50_000),
    with(fun(_, [X]) -> {ok, [X]} end,
         fun(Inst, _) ->
             ?assertEqual({ok, [N * (N - 1) div 2]}, wasmtime:call(Inst, <<"sum">>, [N]))
         end).

%% One host serves many instances and callers at once.
t_one_host_for_many(_) ->
    Host = host(),
    Mod = wasmtime_test:mod(host),
    Callers = [begin
        Inst = inst(Mod, (one(fun(_, [X]) -> {ok, [X + I]} end))#{host => Host}),
        ok = tell(Host, Inst),
        caller(fun() -> Sum = wasmtime:call(Inst, <<"sum">>, [100]), wasmtime:destroy(Inst), {I, Sum} end)
    end || I <- lists:seq(1, 20)],
    [receive {Pid, {I, Sum}} -> ?assertEqual({ok, [4950 + 100 * I]}, Sum) end || {Pid, _} <- Callers],
    exit(Host, kill).

%% The message is the documented one, with the instance's reference.
t_message(_) ->
    Inst = inst(host, (one(fun(_, [X]) -> {ok, [X * 2]} end))#{host => self()}),
    {Pid, _} = caller(fun() -> call(Inst, 21) end),
    Ref = wasmtime:ref(Inst),
    receive
        {wasmtime_host_call, Ref, HostId, {<<"env">>, <<"one">>}, [21]} = Message ->
            ?assert(is_integer(HostId)),
            ?assertMatch(#{state := host_call}, wasmtime:info(Inst)),
            ?assertEqual(ok, wasmtime:handle_host_call(Inst, Message)),
            receive {Pid, Result} -> ?assertEqual({ok, [42]}, Result) end,
            %% It is over: it is not served again, and still recognized.
            ?assertEqual(ok, wasmtime:handle_host_call(Inst, Message))
    end,
    ok = wasmtime:destroy(Inst),
    ?assertEqual([], mailbox()).

%% Everything else is ignored, and what is no instance is an exception.
t_ignored(_) ->
    with(fun(_, [X]) -> {ok, [X]} end,
         fun(Inst, _) ->
             Ref = wasmtime:ref(Inst),
             [?assertEqual({M, ignore}, {M, wasmtime:handle_host_call(Inst, M)})
              || M <- [hello, {}, {wasmtime_host_call, make_ref(), 1, {<<"env">>, <<"one">>}, [1]},
                       {wasmtime_host_call, Ref, a, b, c}, {wasmtime_host_call, Ref, -1, b, []},
                       {wasmtime_host_call, Ref, 1 bsl 64, b, []}, {wasmtime_host_call, Ref, 1, b},
                       {wasmtime_result, Ref, 1, ok}]],
             ?assertEqual(ok, wasmtime:handle_host_call(Inst, {wasmtime_host_call, Ref, 1, b, c})),
             [?assertError(badarg, wasmtime:handle_host_call(Bad, hello)) || Bad <- [Ref, 1, {}]]
         end).

%% A function that fails traps the call and no more; the host lives on.
t_failures(_) ->
    Cases = [fun() -> error(oops) end, fun() -> exit(normal) end, fun() -> throw(ball) end,
             fun() -> {error, enoent} end, fun() -> ok end, fun() -> {ok, [1 | 2]} end,
             fun() -> {ok, []} end, fun() -> {ok, [a]} end, fun() -> {ok, [1, 2]} end],
    Table = list_to_tuple(Cases),
    with(fun(_, [0]) -> {ok, [7]}; (_, [N]) -> (element(N, Table))() end,
         fun(Inst, Host) ->
             [begin
                  ?assertMatch({N, ?WASMTIME_ERROR(host, host_error)}, {N, call(Inst, N)}),
                  ?assertEqual({ok, [7]}, call(Inst, 0))
              end || N <- lists:seq(1, length(Cases))],
             ?assert(is_process_alive(Host))
         end).

%% A host that dies in its function ends the call at once, though the function has all the time there is.
t_dies_while_serving(_) ->
    with(fun(_, [0]) -> exit(self(), kill), receive never -> ok end;
            (_, [1]) -> receive never -> ok end
         end,
         fun(Inst, Host) ->
             ?assertMatch(?WASMTIME_ERROR(host, host_down), call(Inst, 0)),
             ok = down(Host),
             ?assertEqual({ok, [4]}, wasmtime:call(Inst, <<"double">>, [2])),
             ?assertMatch(?WASMTIME_ERROR(host, host_down), call(Inst, 1))
         end).

%% So does one that dies with the host call in its mailbox, or that was dead before.
t_dies_before_serving(_) ->
    Deaf = spawn(fun() -> receive never -> ok end end),
    Inst = inst(host, (one(fun(_, _) -> {ok, [1]} end))#{host => Deaf, host_timeout => infinity}),
    {Pid, _} = caller(fun() -> call(Inst, 1) end),
    wasmtime_test:wait_until(fun() -> maps:get(state, wasmtime:info(Inst)) =:= host_call end),
    exit(Deaf, kill),
    receive {Pid, Result} -> ?assertMatch(?WASMTIME_ERROR(host, host_down), Result) end,
    ?assertMatch(?WASMTIME_ERROR(host, host_down), call(Inst, 1)),
    ok = wasmtime:destroy(Inst),
    Dead = spawn(fun() -> ok end),
    ok = down(Dead),
    Late = inst(host, (one(fun(_, _) -> {ok, [1]} end))#{host => Dead, host_timeout => infinity}),
    ?assertMatch(?WASMTIME_ERROR(host, host_down), call(Late, 1)),
    ?assertEqual({ok, [4]}, wasmtime:call(Late, <<"double">>, [2])),
    ok = wasmtime:destroy(Late),
    ?assertEqual([], mailbox()).

%% An answer that comes too late is dropped: the next host call gets its own.
t_late_answer(_) ->
    with(fun(_, [0]) -> {ok, [7]}; (_, [Ms]) -> timer:sleep(Ms), {ok, [Ms]} end,
         #{host_timeout => 50},
         fun(Inst, Host) ->
             ?assertMatch(?WASMTIME_ERROR(host, host_timeout), call(Inst, 200)),
             ?assertMatch({error, #{kind := timeout}},
                          wasmtime:call(Inst, <<"one">>, [200], #{timeout => 10})),
             Host ! {mailbox, self()},
             receive {Host, Left} -> ?assertEqual([], Left) end,
             ?assertEqual({ok, [7]}, call(Inst, 0))
         end).

%% The host may hand a message on: who takes it serves it, and the guest waits for that process.
t_handed_on(_) ->
    Inst = inst(host, (one(fun(I, [1]) -> wasmtime:call(I, <<"double">>, [21]);
                              (_, [2]) -> exit(self(), kill), receive never -> ok end end))#{
                       host => self(), host_timeout => infinity}),
    {First, _} = caller(fun() -> call(Inst, 1) end),
    Message = receive {wasmtime_host_call, _, _, _, [1]} = M1 -> M1 end,
    Workers = [caller(fun() -> wasmtime:handle_host_call(Inst, Message) end) || _ <- [1, 2, 3]],
    [receive {Worker, Ok} -> ?assertEqual(ok, Ok) end || {Worker, _} <- Workers],
    receive {First, Result} -> ?assertEqual({ok, [42]}, Result) end,
    {Second, _} = caller(fun() -> call(Inst, 2) end),
    Fatal = receive {wasmtime_host_call, _, _, _, [2]} = M2 -> M2 end,
    {_, Monitor} = spawn_monitor(fun() -> wasmtime:handle_host_call(Inst, Fatal) end),
    receive {Second, Down} -> ?assertMatch(?WASMTIME_ERROR(host, host_down), Down) end,
    receive {'DOWN', Monitor, _, _, killed} -> ok end,
    ok = wasmtime:destroy(Inst).

%% While it serves, the host may call the instance, read its memory, and go three levels deep.
t_nested(_) ->
    with(fun(_, [0]) -> {ok, [0]};
            (Inst, [N]) ->
                ok = wasmtime:write_memory(Inst, N, <<N>>),
                {ok, [Below]} = call(Inst, N - 1),
                {ok, [Twice]} = wasmtime:call(Inst, <<"double">>, [N]),
                {ok, <<N>>} = wasmtime:read_memory(Inst, N, 1),
                {ok, [Below + Twice]}
         end,
         fun(Inst, Host) ->
             ?assertEqual({ok, [12]}, call(Inst, 3)),
             ?assertEqual({ok, [110]}, call(Inst, 10)),
             Host ! {mailbox, self()},
             receive {Host, Left} -> ?assertEqual([], Left) end
         end).

%% A nested call that traps, or whose time is up, fails in the host function only.
t_nested_failures(_) ->
    with(fun(_, [0]) -> error(inner);
            (_, [1]) -> timer:sleep(100), {ok, [1]};
            (Inst, [2]) ->
                ?assertMatch(?WASMTIME_ERROR(host, host_error), call(Inst, 0)),
                {ok, [2]};
            (Inst, [3]) ->
                ?assertMatch(?WASMTIME_TRAP(timeout),
                             wasmtime:call(Inst, <<"one">>, [1], #{timeout => 20})),
                {ok, [3]};
            (Inst, [4]) -> call(Inst, 1)
         end,
         fun(Inst, _) ->
             ?assertEqual({ok, [2]}, call(Inst, 2)),
             ?assertEqual({ok, [3]}, call(Inst, 3)),
             %% The outer call's time ends both.
             ?assertMatch(?WASMTIME_TRAP(timeout),
                          wasmtime:call(Inst, <<"one">>, [4], #{timeout => 20})),
             ?assertEqual({ok, [2]}, call(Inst, 2))
         end).

%% A caller that dies ends what its host runs inside of the call; a host that dies ends the call.
t_dies_while_nested(_) ->
    Self = self(),
    Host = host(),
    Inst = inst(loop, #{{"env", "tick"} => fun(I, []) ->
        Self ! {nested, wasmtime:call(I, <<"spin">>, [])},
        {ok, []}
    end, host => Host, host_timeout => infinity}),
    ok = tell(Host, Inst),
    Spinning = fun() ->
        {Pid, Monitor} = caller(fun() -> wasmtime:call(Inst, <<"tick_once">>, []) end),
        wasmtime_test:wait_until(fun() ->
            #{calls := Calls, state := State} = wasmtime:info(Inst),
            Calls rem 2 =:= 0 andalso State =:= running
        end),
        {Pid, Monitor}
    end,
    {Caller, Monitor} = Spinning(),
    exit(Caller, kill),
    receive {'DOWN', Monitor, _, _, killed} -> ok end,
    receive {nested, Nested} -> ?assertMatch({error, #{kind := interrupt}}, Nested) end,
    ?assert(is_process_alive(Host)),
    {Second, _} = Spinning(),
    exit(Host, kill),
    receive {Second, Result} -> ?assertMatch(?WASMTIME_ERROR(host, host_down), Result) end,
    ?assertMatch(#{state := idle}, wasmtime:info(Inst)),
    ok = wasmtime:destroy(Inst).

%% A call of the host that queues behind one that needs the host runs inside it: nobody waits for ever.
t_host_calls_at_any_time(_) ->
    Rounds = wasmtime_test:rounds(300, 1000, 20_000),
    with(fun(_, [X]) -> {ok, [X]} end,
         fun(Inst, Host) ->
             Self = self(),
             {Pid, _} = caller(fun() ->
                 [?assertEqual({ok, [10]}, wasmtime:call(Inst, <<"sum">>, [5]))
                  || _ <- lists:seq(1, Rounds)]
             end),
             [Host ! {run, fun() ->
                  ?assertEqual({ok, [6]}, wasmtime:call(Inst, <<"double">>, [3])),
                  Self ! called
              end} || _ <- lists:seq(1, Rounds)],
             [receive called -> ok end || _ <- lists:seq(1, Rounds)],
             receive {Pid, Results} -> ?assertEqual(Rounds, length(Results)) end
         end).

%% A start section is served by the process that instantiates: the host cannot have the instance yet.
t_start_section(_) ->
    Self = self(),
    Host = host(),
    Inst = inst(start_host, #{{"env", "one"} => fun(_, [5]) -> Self ! self(), {ok, [99]} end,
                              host => Host}),
    receive Self -> ok end,
    ?assertEqual({ok, <<99>>}, wasmtime:read_memory(Inst, 0, 1)),
    ok = wasmtime:destroy(Inst),
    exit(Host, kill).

%% A host that calls is a caller like any other: it serves inside its call.
t_host_is_caller(_) ->
    Inst = inst(host, (one(fun(_, [X]) -> {ok, [X + 1]} end))#{host => self()}),
    ?assertEqual({ok, [2]}, call(Inst, 1)),
    ?assertEqual([], mailbox()),
    ok = wasmtime:destroy(Inst).

%% A template's host serves every instance made from it.
t_template(_) ->
    Host = host(),
    Self = self(),
    Mod = wasmtime_test:mod(host),
    {ok, Template} = wasmtime_test:prepare(Mod, (one(fun(_, [X]) -> Self ! self(), {ok, [X]} end))#{host => Host}),
    [begin
         {ok, Inst} = wasmtime:instantiate(Template),
         ok = tell(Host, Inst),
         ?assertEqual({ok, [I]}, call(Inst, I)),
         receive Host -> ok end,
         ok = wasmtime:destroy(Inst)
     end || I <- [1, 2, 3]],
    exit(Host, kill).

%% The caller's deadline, an interrupt, destroy and the caller's death end the call while the host serves.
t_ended_while_serving(_) ->
    Self = self(),
    Serve = fun(_, [1]) -> Self ! {serving, 1}, receive go -> {ok, [1]} end;
               (_, [X]) -> Self ! {serving, X}, timer:sleep(50), {ok, [X]} end,
    with(Serve,
         fun(Inst, Host) ->
             ?assertMatch(?WASMTIME_TRAP(timeout), wasmtime:call(Inst, <<"one">>, [1], #{timeout => 500})),
             receive {serving, 1} -> Host ! go end,
             {A, _} = caller(fun() -> call(Inst, 2) end),
             receive {serving, 2} -> ok end,
             ?assertEqual(ok, wasmtime:interrupt(Inst)),
             receive {A, Interrupted} -> ?assertMatch(?WASMTIME_TRAP(interrupt), Interrupted) end,
             {B, _} = caller(fun() -> call(Inst, 3) end),
             receive {serving, 3} -> ok end,
             exit(B, kill),
             ?assertEqual({ok, [8]}, wasmtime:call(Inst, <<"double">>, [4], #{timeout => 5000})),
             {C, _} = caller(fun() -> call(Inst, 4) end),
             receive {serving, 4} -> ok end,
             ?assertEqual(ok, wasmtime:destroy(Inst)),
             receive {C, Destroyed} -> ?assertMatch(?WASMTIME_ERROR(call, destroyed), Destroyed) end
         end).

%% Hosts and callers killed at any moment: every call that lives is answered, and nothing is left.
t_storm(_) ->
    wasmtime_test:counted(fun() ->
        storm(wasmtime_test:mod(host), wasmtime_test:rounds(300, 1000, 20_000))
    end).

storm(Mod, Rounds) ->
    [storm_round(Mod, lists:nth(I rem 3 + 1, [host, caller, both])) || I <- lists:seq(1, Rounds)],
    ok.

storm_round(Mod, Who) ->
    Host = host(),
    Nest = fun(_, [0]) -> {ok, [0]};
              (I, [N]) -> {ok, [_]} = wasmtime:call(I, <<"double">>, [N]), {ok, [N]} end,
    Inst = inst(Mod, (one(Nest))#{host => Host, host_timeout => infinity}),
    ok = tell(Host, Inst),
    Callers = [{Victim, _} | _] =
        [caller(fun() -> wasmtime:call(Inst, <<"sum">>, [10_000]) end) || _ <- [1, 2]],
    spin(rand:uniform(2000)),
    _ = [exit(Host, kill) || Who =/= caller],
    _ = [exit(Victim, kill) || Who =/= host],
    _ = [exit(Host, kill) || Who =:= caller, spin(1000)],
    [receive
         {Pid, Result} -> ?assertMatch({Who, ?WASMTIME_ERROR(host, host_down)}, {Who, Result});
         {'DOWN', M, _, _, killed} -> ?assertNotEqual(host, Who), ?assertEqual(Victim, Pid)
     after 20_000 -> error({stuck, Who, wasmtime:info(Inst)})
     end || {Pid, M} <- Callers],
    ok = wasmtime:destroy(Inst),
    [demonitor(M, [flush]) || {_, M} <- Callers],
    [receive {Pid, _} -> ok after 0 -> ok end || {Pid, _} <- Callers].

%% Some microseconds.
spin(Micros) ->
    Until = erlang:monotonic_time(microsecond) + Micros,
    (fun Loop() -> erlang:monotonic_time(microsecond) >= Until orelse Loop() end)().
