%% Calls that their process does not wait for: one message each, served while it awaits, ended like any
%% other call, and nothing left behind.
-module(async_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [inst/1, inst/2, one/1, caller/1]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) ->
    wasmtime_test:use(Runner),
    [{runner, Runner} | Config].

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

async(Inst, Name, Args) -> async(Inst, Name, Args, #{}).

async(Inst, Name, Args, Opts) ->
    {ok, Call} = wasmtime:call_async(Inst, Name, Args, Opts),
    Call.

interrupt(Inst) -> ?assertEqual(ok, wasmtime:interrupt(Inst)).

%% What the library left in the mailbox.
mailbox() -> [M || M <- wasmtime_test:mailbox(), element(1, M) =/= 'DOWN'].

with(Fun, Test) ->
    wasmtime_test:with_inst(host, (one(Fun))#{host_timeout => infinity}, Test),
    ?assertEqual([], mailbox()).

%% The result is a message with the instance's reference and the call, as a server would match it.
t_message(_) ->
    Inst = inst(add),
    Ref = wasmtime:ref(Inst),
    Call = async(Inst, <<"add">>, [1, 2]),
    ?assert(is_integer(Call)),
    receive {wasmtime_result, Ref, Call, Result} -> ?assertEqual({ok, [3]}, Result) end,
    ?assertEqual([], mailbox()),
    ok = wasmtime:destroy(Inst).

%% Results may be awaited in any order; calls of one instance run in theirs.
t_await(_) ->
    Inst = inst(memory),
    Calls = [async(Inst, <<"count">>, []) || _ <- lists:seq(1, 20)],
    ?assertEqual(lists:usort(Calls), lists:sort(Calls)),
    Results = [{Call, wasmtime:await(Inst, Call)} || Call <- lists:reverse(Calls)],
    ?assertEqual([{ok, [N]} || N <- lists:seq(1, 20)],
                 [Result || {_, Result} <- lists:sort(Results)]),
    ?assertEqual([], mailbox()),
    ok = wasmtime:destroy(Inst).

%% The process goes on while guests compute, of one instance or of many.
t_goes_on(_) ->
    Insts = [inst(spin) || _ <- lists:seq(1, 4)],
    Calls = [{Inst, async(Inst, <<"spin">>, [], #{timeout => 100})} || Inst <- Insts],
    [?assertMatch(#{state := State} when State =/= destroyed, wasmtime:info(Inst)) || Inst <- Insts],
    [?assertMatch(?WASMTIME_TRAP(timeout), wasmtime:await(Inst, Call)) || {Inst, Call} <- Calls],
    [ok = wasmtime:destroy(Inst) || Inst <- Insts],
    ?assertEqual([], mailbox()).

%% What is wrong at once is an error at once, and no message follows.
t_errors_at_once(_) ->
    Inst = inst(add),
    Start = fun(Name, Args, Opts) -> wasmtime:call_async(Inst, Name, Args, Opts) end,
    ?assertMatch(?WASMTIME_ERROR(call, unknown_export), Start(<<"nothing">>, [], #{})),
    ?assertMatch(?WASMTIME_ERROR(call, badarity), Start(<<"add">>, [1], #{})),
    ?assertMatch(?WASMTIME_ERROR(call, badarg), Start(<<"add">>, [1, a], #{})),
    ?assertMatch(?WASMTIME_ERROR(call, badarg), Start(<<"add">>, [1 | 2], #{})),
    ?assertMatch(?WASMTIME_ERROR(call, badarg), Start(add, [1, 2], #{})),
    ?assertMatch(?WASMTIME_BADARG(timeout), Start(<<"add">>, [1, 2], #{timeout => -1})),
    ?assertMatch(?WASMTIME_BADARG(options), Start(<<"add">>, [1, 2], [])),
    ?assertMatch(?WASMTIME_BADARG(nonsense), Start(<<"add">>, [1, 2], #{nonsense => 1})),
    ok = wasmtime:destroy(Inst),
    ?assertMatch(?WASMTIME_ERROR(call, destroyed), Start(<<"add">>, [1, 2], #{})),
    [?assertError(badarg, wasmtime:call_async(Bad, <<"add">>, [])) || Bad <- [1, make_ref()]],
    timer:sleep(10),
    ?assertEqual([], mailbox()).

%% Host functions run in the process that awaits.
t_serves_while_awaiting(_) ->
    Self = self(),
    with(fun(_, [X]) -> ?assertEqual(Self, self()), {ok, [X]} end,
         fun(Inst) ->
             Call = async(Inst, <<"sum">>, [100]),
             ?assertEqual({ok, [4950]}, wasmtime:await(Inst, Call))
         end).

%% Or as their messages come, in a process that does other things too.
t_serves_messages(_) ->
    with(fun(_, [X]) -> {ok, [X]} end,
         fun(Inst) ->
             Ref = wasmtime:ref(Inst),
             Call = async(Inst, <<"sum">>, [100]),
             self() ! other,
             ?assertEqual({{ok, [4950]}, 100}, server(Inst, Ref, Call, 0)),
             receive other -> ok end
         end).

server(Inst, Ref, Call, Served) ->
    receive
        {wasmtime_result, Ref, Call, Result} -> {Result, Served};
        {wasmtime_host_call, Ref, _, _, _} = Message ->
            ok = wasmtime:handle_host_call(Inst, Message),
            server(Inst, Ref, Call, Served + 1)
    end.

%% A host of its own serves them while nobody awaits.
t_host(_) ->
    Host = spawn(fun Loop() ->
        receive
            {serve, I} -> put(inst, I), Loop();
            M -> ok = wasmtime:handle_host_call(get(inst), M), Loop()
        end
    end),
    Inst = inst(host, (one(fun(_, [X]) -> ?assertEqual(Host, self()), {ok, [X]} end))#{host => Host}),
    Host ! {serve, Inst},
    Ref = wasmtime:ref(Inst),
    Call = async(Inst, <<"sum">>, [100]),
    receive {wasmtime_result, Ref, Call, Result} -> ?assertEqual({ok, [4950]}, Result) end,
    exit(Host, kill),
    ?assertMatch(?WASMTIME_ERROR(host, host_down),
                 wasmtime:await(Inst, async(Inst, <<"one">>, [1]))),
    ok = wasmtime:destroy(Inst),
    ?assertEqual([], mailbox()).

%% After its time `await' cancels the call, wherever the guest is, and leaves nothing.
t_await_timeout(_) ->
    Inst = inst(spin),
    Call = async(Inst, <<"spin">>, []),
    ?assertMatch(?WASMTIME_TRAP(timeout), wasmtime:await(Inst, Call, 20)),
    ?assertMatch(#{state := idle}, wasmtime:info(Inst)),
    %% Also one that waits in the queue.
    First = async(Inst, <<"spin">>, []),
    Second = async(Inst, <<"ok">>, []),
    ?assertMatch({error, #{kind := timeout}}, wasmtime:await(Inst, Second, 20)),
    ?assertMatch(?WASMTIME_TRAP(timeout), wasmtime:await(Inst, First, 0)),
    ?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"ok">>, [])),
    ok = wasmtime:destroy(Inst),
    with(fun(_, [Ms]) -> timer:sleep(Ms), {ok, [1]} end,
         fun(Host) ->
             ?assertMatch(?WASMTIME_TRAP(timeout),
                          wasmtime:await(Host, async(Host, <<"one">>, [50]), 10)),
             ?assertEqual({ok, [1]}, wasmtime:await(Host, async(Host, <<"one">>, [0]), 5000))
         end).

%% A host call that nobody served goes with its call.
t_unserved(_) ->
    with(fun(_, [X]) -> {ok, [X]} end,
         fun(Inst) ->
             Call = async(Inst, <<"one">>, [1], #{timeout => 20}),
             timer:sleep(60),
             ?assertMatch(?WASMTIME_TRAP(timeout), wasmtime:await(Inst, Call)),
             ?assertEqual([], mailbox()),
             %% The host call of the next one stays, though that is awaited later.
             A = async(Inst, <<"one">>, [1], #{timeout => 20}),
             B = async(Inst, <<"one">>, [2]),
             timer:sleep(60),
             ?assertMatch(?WASMTIME_TRAP(timeout), wasmtime:await(Inst, A)),
             ?assertEqual({ok, [2]}, wasmtime:await(Inst, B))
         end).

%% Many timeouts that meet the result: the answer is one or the other, and nothing stays.
t_await_races(_) ->
    Inst = inst(host, one(fun(_, [X]) -> {ok, [X]} end)),
    Results = [wasmtime:await(Inst, async(Inst, <<"sum">>, [20]), rand:uniform(3) - 1)
               || _ <- lists:seq(1, wasmtime_test:rounds(300, 1000, 10_000))],
    [case Result of
         {ok, [190]} -> ok;
         _ -> ?assertMatch({error, #{kind := timeout}}, Result)
     end || Result <- Results],
    ?assertEqual([], mailbox()),
    ok = wasmtime:destroy(Inst).

%% Only the process that started a call can await it, and once: anything else is an error at once.
t_await_refused(_) ->
    Inst = inst(spin),
    Call = async(Inst, <<"spin">>, []),
    {Pid, _} = caller(fun() -> wasmtime:await(Inst, Call) end),
    receive {Pid, Other} -> ?assertMatch(?WASMTIME_ERROR(call, badarg), Other) end,
    interrupt(Inst),
    ?assertMatch(?WASMTIME_TRAP(interrupt), wasmtime:await(Inst, Call)),
    ?assertMatch(?WASMTIME_ERROR(call, badarg), wasmtime:await(Inst, Call)),
    ?assertMatch(?WASMTIME_ERROR(call, badarg), wasmtime:await(Inst, Call, 10)),
    [?assertMatch({Bad, ?WASMTIME_ERROR(call, badarg)}, {Bad, wasmtime:await(Inst, Bad)})
     || Bad <- [a, -1, 1 bsl 64, 1.0, make_ref(), {}, 1]],
    [?assertMatch({Bad, ?WASMTIME_BADARG(timeout)}, {Bad, wasmtime:await(Inst, Call, Bad)})
     || Bad <- [-1, a, 1.0, 1 bsl 32]],
    [?assertError(badarg, wasmtime:await(Bad, Call)) || Bad <- [1, make_ref()]],
    ok = wasmtime:destroy(Inst),
    ?assertMatch(?WASMTIME_ERROR(call, badarg), wasmtime:await(Inst, Call)),
    ?assertEqual([], mailbox()).

%% An interrupt, destroy and the call's own deadline answer it.
t_ended(_) ->
    Inst = inst(spin),
    A = async(Inst, <<"spin">>, []),
    interrupt(Inst),
    ?assertMatch(?WASMTIME_TRAP(interrupt), wasmtime:await(Inst, A)),
    B = async(Inst, <<"spin">>, [], #{timeout => 10}),
    ?assertMatch(?WASMTIME_TRAP(timeout), wasmtime:await(Inst, B)),
    Calls = [async(Inst, <<"spin">>, []) || _ <- [1, 2, 3]],
    ok = wasmtime:destroy(Inst),
    [?assertMatch(?WASMTIME_ERROR(call, destroyed), wasmtime:await(Inst, Call)) || Call <- Calls],
    ?assertEqual([], mailbox()).

%% An interrupt ends the call that was started just before, whether it began or not; the one behind it goes
%% on, and is the next to be interrupted.
t_interrupted_at_once(_) ->
    Inst = inst(spin),
    [begin
         [Spin, Ok, Last] = [async(Inst, Name, []) || Name <- [<<"spin">>, <<"ok">>, <<"spin">>]],
         interrupt(Inst),
         ?assertMatch(?WASMTIME_TRAP(interrupt), wasmtime:await(Inst, Spin)),
         ?assertEqual({ok, [1]}, wasmtime:await(Inst, Ok)),
         interrupt(Inst),
         ?assertMatch(?WASMTIME_TRAP(interrupt), wasmtime:await(Inst, Last)),
         ?assertEqual(not_running, wasmtime:interrupt(Inst))
     end || _ <- lists:seq(1, wasmtime_test:rounds(100, 1000, 10_000))],
    ?assertEqual([], mailbox()),
    wasmtime_test:wait_until(fun() -> drivers() =:= [] end),
    ok = wasmtime:destroy(Inst).

%% A call of a process that died is over, in wasm, in a host call, and in the queue.
t_dead_asker(_) ->
    Inst = inst(loop, #{{"env", "tick"} => fun(_, []) -> {ok, []} end}),
    [begin
         {Pid, Monitor} = spawn_monitor(fun() ->
             {ok, _} = wasmtime:call_async(Inst, Export, []),
             {ok, _} = wasmtime:call_async(Inst, <<"spin">>, []),
             exit(bye)
         end),
         receive {'DOWN', Monitor, process, Pid, bye} -> ok end,
         ?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"ok">>, [], #{timeout => 5000}))
     end || Export <- [<<"spin">>, <<"tick_once">>], _ <- lists:seq(1, 20)],
    ok = wasmtime:destroy(Inst).

%% Under the scheduler runner a process polls the call: when somebody kills it, the call is answered.
t_dead_driver(Config) ->
    Inst = inst(spin),
    [begin
         Call = async(Inst, <<"spin">>, []),
         Drivers = drivers(),
         ?assertEqual(case proplists:get_value(runner, Config) of thread -> 0; scheduler -> 1 end,
                      length(Drivers)),
         _ = [exit(Driver, kill) || Driver <- Drivers],
         _ = [interrupt(Inst) || [] =:= Drivers],
         ?assertMatch(?WASMTIME_TRAP(interrupt), wasmtime:await(Inst, Call, 5000))
     end || _ <- lists:seq(1, 50)],
    ?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"ok">>, [])),
    wasmtime_test:wait_until(fun() -> drivers() =:= [] end),
    ok = wasmtime:destroy(Inst).

drivers() ->
    [Pid || Pid <- processes(),
            process_info(Pid, initial_call) =:= {initial_call, {wasmtime_async, drive, 1}}].

%% A call that queues behind an asynchronous one of its own process does not wait for itself.
t_call_behind(_) ->
    with(fun(_, [X]) -> {ok, [X]} end,
         fun(Inst) ->
             Call = async(Inst, <<"sum">>, [50]),
             ?assertEqual({ok, [8]}, wasmtime:call(Inst, <<"double">>, [4])),
             ?assertEqual({ok, [10]}, wasmtime:call(Inst, <<"sum">>, [5])),
             ?assertEqual({ok, [1225]}, wasmtime:await(Inst, Call))
         end).

%% Inside a host function: awaited there, or afterwards, or never.
t_in_host_fun(_) ->
    with(fun(_, [0]) -> {ok, [5]};
            (Inst, [1]) ->
                Calls = [async(Inst, <<"double">>, [N]) || N <- [1, 2, 3]],
                [{ok, [6]}, {ok, [4]}, {ok, [2]}] =
                    [wasmtime:await(Inst, Call) || Call <- lists:reverse(Calls)],
                wasmtime:await(Inst, async(Inst, <<"one">>, [0]));
            (Inst, [2]) -> put(later, async(Inst, <<"one">>, [0])), {ok, [6]};
            (Inst, [3]) ->
                ?assertMatch({error, #{kind := timeout}},
                             wasmtime:await(Inst, async(Inst, <<"one">>, [4]), 10)),
                {ok, [7]};
            (_, [4]) -> timer:sleep(50), {ok, [8]};
            (Inst, [5]) ->
                ?assertMatch(?WASMTIME_ERROR(call, badarg), wasmtime:await(Inst, get(outer))),
                {ok, [9]}
         end,
         fun(Inst) ->
             [begin
                  ?assertEqual({ok, [5]}, Do(<<"one">>, [1])),
                  ?assertEqual({ok, [6]}, Do(<<"one">>, [2])),
                  ?assertEqual({ok, [5]}, wasmtime:await(Inst, erase(later))),
                  ?assertEqual({ok, [7]}, Do(<<"one">>, [3]))
              end || Do <- [fun(Name, Args) -> wasmtime:call(Inst, Name, Args) end,
                            fun(Name, Args) -> wasmtime:await(Inst, async(Inst, Name, Args)) end]],
             %% A call that waits for this very function cannot be awaited in it.
             put(outer, async(Inst, <<"one">>, [5])),
             ?assertEqual({ok, [9]}, wasmtime:await(Inst, get(outer)))
         end).

%% The start of many, the end of all: nothing is left but parked threads, as many as ran at once.
t_many(_) ->
    wasmtime_test:in_process(fun many/0),
    Live = maps:remove(threads_parked, wasmtime_test:settled()),
    wasmtime_test:in_process(fun many/0),
    ?assertEqual(Live, maps:remove(threads_parked, wasmtime_test:settled())).

many() ->
    Mod = wasmtime_test:mod(memory),
    Calls = [begin Inst = inst(Mod, #{}), {Inst, async(Inst, <<"count">>, [])} end
             || _ <- lists:seq(1, wasmtime_test:rounds(300, 1000, 5000))],
    [?assertEqual({ok, [1]}, wasmtime:await(Inst, Call)) || {Inst, Call} <- Calls],
    ?assertEqual([], mailbox()).

%% Askers and drivers killed at any moment: every call of the living is answered, and nothing is left.
t_storm(_) ->
    wasmtime_test:counted(fun() ->
        Mod = wasmtime_test:mod(host),
        [storm(Mod, lists:nth(I rem 3 + 1, [asker, driver, destroy]))
         || I <- lists:seq(1, wasmtime_test:rounds(300, 1000, 20_000))]
    end).

storm(Mod, Who) ->
    Self = self(),
    Inst = inst(Mod, (one(fun(_, [X]) -> {ok, [X]} end))#{host_timeout => infinity}),
    {Victim, Monitor} = spawn_monitor(fun() ->
        Calls = [wasmtime:call_async(Inst, <<"sum">>, [2000]) || _ <- [1, 2]],
        Self ! {self(), [case Call of {ok, C} -> wasmtime:await(Inst, C); _ -> Call end || Call <- Calls]}
    end),
    Mine = async(Inst, <<"sum">>, [10]),
    host_process_SUITE:spin(rand:uniform(1000)),
    case Who of
        asker -> exit(Victim, kill);
        driver -> [exit(Pid, kill) || Pid <- drivers()];
        destroy -> ok = wasmtime:destroy(Inst)
    end,
    Result = wasmtime:await(Inst, Mine, 20_000),
    ?assert(Result =:= {ok, [45]} orelse Who =/= asker, Result),
    ?assertNotMatch({error, #{kind := timeout}}, Result),
    receive
        {Victim, Results} -> ?assertEqual(2, length(Results));
        {'DOWN', Monitor, _, _, killed} -> asker = Who
    after 20_000 -> error({stuck, Who, wasmtime:info(Inst)})
    end,
    ok = wasmtime:destroy(Inst),
    demonitor(Monitor, [flush]),
    receive {Victim, _} -> ok after 0 -> ok end,
    ?assertEqual([], mailbox()).
