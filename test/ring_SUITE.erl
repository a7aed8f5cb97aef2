%% Instances that call each other through host functions, in rings that mix the runners: in one process,
%% through a host process for each, and back to the first instance.
-module(ring_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [caller/1]).

all() -> [{group, thread}, {group, scheduler}, {group, mixed}].

groups() -> [{Mix, [], wasmtime_test:cases(?MODULE)} || {group, Mix} <- all()].

init_per_group(Mix, Config) -> [{mix, Mix} | Config].

end_per_group(_, _) -> ok.

suite() -> wasmtime_test:suite().

%% The runner of the I-th instance of a ring.
runner(Config, I) ->
    case proplists:get_value(mix, Config) of
        mixed when I rem 2 =:= 0 -> thread;
        mixed -> scheduler;
        Runner -> Runner
    end.

%% N instances of host.wat; `one(X)' of each is Fun(Next, I, X), where Next is the one after it.
ring(Config, N, Opts, Fun) ->
    Mod = wasmtime_test:mod(host),
    Table = ets:new(ring, [public]),
    Insts = [begin
        One = wasmtime_test:one(fun(_, [X]) ->
            [{_, Next}] = ets:lookup(Table, I rem N + 1),
            Fun(Next, I, X)
        end),
        {ok, Inst} = wasmtime:instantiate(Mod, maps:merge(One#{runner => runner(Config, I)}, Opts(I))),
        true = ets:insert(Table, {I, Inst}),
        Inst
    end || I <- lists:seq(1, N)],
    Insts.

destroy(Insts) -> [ok = wasmtime:destroy(Inst) || Inst <- Insts].

%% Each calls the next with one less, down to nothing.
pass(Next, _, X) when X > 0 ->
    {ok, [Y]} = wasmtime:call(Next, <<"one">>, [X - 1]),
    {ok, [Y + 1]};
pass(_, _, 0) ->
    {ok, [0]}.

call(Inst, X) -> wasmtime:call(Inst, <<"one">>, [X]).

%% In one process, around the ring once, and so often that every instance is entered many times.
t_one_process(Config) ->
    Insts = [First | _] = ring(Config, 3, fun(_) -> #{} end, fun pass/3),
    [?assertEqual({ok, [X]}, call(First, X)) || X <- [0, 1, 2, 3, 4, 30, 100]],
    [?assertEqual({ok, [7]}, call(Inst, 7)) || Inst <- Insts],
    ?assertEqual([], wasmtime_test:mailbox()),
    destroy(Insts).

%% A ring of one is an instance that calls itself.
t_alone(Config) ->
    [Inst] = ring(Config, 1, fun(_) -> #{} end, fun pass/3),
    ?assertEqual({ok, [20]}, call(Inst, 20)),
    destroy([Inst]).

%% A trap anywhere comes back around the ring as a host error of each; all live on.
t_trap(Config) ->
    Insts = [First | _] = ring(Config, 3, fun(_) -> #{} end,
        fun(Next, _, X) when X > 0 ->
                case call(Next, X - 1) of
                    {ok, [Y]} -> {ok, [Y + 1]};
                    {error, #{message := Message}} -> {error, Message}
                end;
           (_, I, 0) -> error({stop, I})
        end),
    {error, #{class := host, kind := host_error, message := Message}} = call(First, 4),
    ?assertMatch({_, _}, binary:match(Message, <<"{stop,2}">>)),
    [?assertEqual({ok, [4]}, wasmtime:call(Inst, <<"double">>, [2])) || Inst <- Insts],
    destroy(Insts).

%% A deadline in the middle ends what is inside of it; the outer calls see the timeout.
t_timeout(Config) ->
    Insts = [First | _] = ring(Config, 3, fun(_) -> #{} end,
        fun(Next, 2, X) when X > 0 ->
                ?assertMatch({error, #{kind := timeout}},
                             wasmtime:call(Next, <<"one">>, [X - 1], #{timeout => 20})),
                {ok, [77]};
           (Next, _, X) when X > 1 -> call(Next, X - 1);
           (_, _, X) -> timer:sleep(60), {ok, [X]}
        end),
    ?assertEqual({ok, [77]}, call(First, 2)),
    ?assertEqual({ok, [77]}, call(First, 3)),
    ?assertMatch(?WASMTIME_TRAP(timeout), wasmtime:call(First, <<"one">>, [1], #{timeout => 10})),
    [?assertEqual({ok, [4]}, wasmtime:call(Inst, <<"double">>, [2])) || Inst <- Insts],
    destroy(Insts).

%% A host process for each instance: the ring goes through three processes.
t_host_processes(Config) ->
    Insts = [First | _] = hosted(Config, 3, #{}, fun pass/3),
    [?assertEqual({ok, [X]}, call(First, X)) || X <- [0, 1, 2]],
    ?assertEqual([], wasmtime_test:mailbox()),
    destroy(Insts).

%% Back at the first instance, its host waits for the ring: no process may wait for itself for ever.
%% The innermost call queues, and time ends it.
t_host_processes_full_circle(Config) ->
    Insts = [First | _] = hosted(Config, 3, #{},
        fun(Next, _, X) when X > 0 -> wasmtime:call(Next, <<"one">>, [X - 1], #{timeout => 300});
           (_, _, 0) -> {ok, [0]} end),
    ?assertMatch({error, _}, call(First, 3)),
    ?assertEqual({ok, [0]}, call(First, 2)),
    Timed = hosted(Config, 3, #{host_timeout => 50}, fun(Next, _, X) when X > 0 -> call(Next, X - 1);
                                                        (_, _, 0) -> {ok, [0]} end),
    ?assertMatch({error, #{class := host}}, call(hd(Timed), 3)),
    ?assertEqual({ok, [0]}, call(hd(Timed), 2)),
    destroy(Insts ++ Timed).

%% One host process for the whole ring serves it around and around.
t_one_host(Config) ->
    Host = host(),
    Insts = [First | _] = ring(Config, 3, fun(_) -> #{host => Host} end, fun pass/3),
    [tell(Host, Inst) || Inst <- Insts],
    [?assertEqual({ok, [X]}, call(First, X)) || X <- [0, 1, 2, 3, 4, 30]],
    Callers = [caller(fun() -> call(Inst, 10) end) || Inst <- Insts, _ <- [1, 2]],
    [receive {Pid, Result} -> ?assertEqual({ok, [10]}, Result) end || {Pid, _} <- Callers],
    exit(Host, kill),
    ?assertMatch(?WASMTIME_ERROR(host, host_down), call(First, 3)),
    destroy(Insts).

hosted(Config, N, Opts, Fun) ->
    Hosts = [host() || _ <- lists:seq(1, N)],
    Insts = ring(Config, N, fun(I) -> Opts#{host => lists:nth(I, Hosts)} end, Fun),
    [tell(Host, Inst) || {Host, Inst} <- lists:zip(Hosts, Insts)],
    Insts.

host() -> host_process_SUITE:host().

tell(Host, Inst) -> host_process_SUITE:tell(Host, Inst).

%% The process in the middle of a ring is killed at any moment: nothing is left, nobody is stuck.
t_storm(Config) ->
    wasmtime_test:counted(fun() ->
        [begin
             Insts = [First, Second | _] = ring(Config, 3, fun(_) -> #{} end, fun pass/3),
             {Pid, Monitor} = caller(fun() -> [call(First, 20) || _ <- lists:seq(1, 1000)] end),
             host_process_SUITE:spin(rand:uniform(500)),
             case I rem 3 of
                 0 -> exit(Pid, kill);
                 1 -> ok = wasmtime:destroy(Second), exit(Pid, kill);
                 2 -> wasmtime:interrupt(Second), exit(Pid, kill)
             end,
             receive {'DOWN', Monitor, _, _, _} -> ok end,
             ?assertEqual({ok, [4]}, wasmtime:call(First, <<"double">>, [2], #{timeout => 10_000})),
             destroy(Insts)
         end || I <- lists:seq(1, wasmtime_test:rounds(200, 600, 10_000))]
    end).
