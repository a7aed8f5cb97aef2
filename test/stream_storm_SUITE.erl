%% Streams under storms: receivers, senders and callers die, instances are destroyed while they wait
%% or write. Nothing is left behind, and nothing hangs.
-module(stream_storm_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [mod/1, inst/2, in_process/1, calling/1, settled/0]).
-import(stream_SUITE, [with_host/1]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

-define(STREAMS, #{stdin => stream, stdout => stream, stderr => stream}).

%% Runs in a process of its own; afterwards every native object that it made is gone.
counted(Fun) ->
    in_process(Fun),
    Live = maps:remove(threads_parked, settled()),
    in_process(Fun),
    ?assertEqual(Live, maps:remove(threads_parked, settled())).

repeated(Quick, Normal, Full, Fun) ->
    [Fun(N) || N <- lists:seq(1, wasmtime_test:rounds(Quick, Normal, Full))].

helper(Fun) -> spawn_monitor(Fun).

kill({Pid, Monitor}) ->
    exit(Pid, kill),
    receive {'DOWN', Monitor, _, _, _} -> ok end.

result({Pid, Monitor}) ->
    receive {'DOWN', Monitor, process, Pid, Reason} -> Reason end.

%% Reads what it is sent, so that no mailbox grows.
drain() -> receive _ -> drain() end.

%% Receivers die while guests write to them: the guests neither notice nor keep anything.
t_receivers_die(_) ->
    counted(fun() ->
        Mod = mod(channel),
        repeated(10, 50, 500, fun(_) ->
            Receiver = helper(fun drain/0),
            Inst = inst(Mod, with_host(#{stream => element(1, Receiver)})),
            Caller = helper(fun() -> exit(wasmtime:call(Inst, <<"count">>, [5000])) end),
            kill(Receiver),
            ?assertEqual({ok, []}, result(Caller)),
            ?assertEqual({ok, []}, wasmtime:call(Inst, <<"count">>, [10])),
            ok = wasmtime:destroy(Inst)
        end)
    end).

%% The makers of instances, who get the streams, die with everything under way.
t_owners_die(_) ->
    counted(fun() ->
        {Channel, Stdio} = {mod(channel), mod(stdio)},
        Self = self(),
        repeated(5, 30, 300, fun(_) ->
            Owner = helper(fun() ->
                Insts = [inst(Channel, with_host(#{})), inst(Stdio, #{wasi => ?STREAMS})],
                [A, B] = Insts,
                Ways = [{A, <<"recv">>, [0, 10]}, {B, <<"prompt">>, []}, {A, <<"count">>, [-1]}],
                Pids = [spawn_link(fun() -> wasmtime:call(I, Name, Args) end) || {I, Name, Args} <- Ways],
                calling(hd(Pids)),
                [ok = wasmtime:send(B, <<"x">>) || _ <- lists:seq(1, 100)],
                Self ! ready,
                drain()
            end),
            receive ready -> ok end,
            kill(Owner)
        end)
    end).

%% Instances are destroyed while they wait, with many processes sending to them: each sender hears
%% of it, each caller too.
t_destroyed_while_blocked(_) ->
    counted(fun() ->
        {Channel, Stdio} = {mod(channel), mod(stdio)},
        repeated(10, 50, 500, fun(N) ->
            {Inst, Name, Args} = case N rem 2 of
                0 -> {inst(Channel, with_host(#{})), <<"echo">>, []};
                1 -> {inst(Stdio, #{wasi => ?STREAMS}), <<"cat">>, []}
            end,
            Caller = helper(fun() -> exit(wasmtime:call(Inst, Name, Args)) end),
            calling(element(1, Caller)),
            Senders = [helper(fun() -> exit(hammer(Inst)) end) || _ <- lists:seq(1, 8)],
            timer:sleep(N rem 4),
            ok = wasmtime:destroy(Inst),
            [?assertEqual(destroyed, result(Sender)) || Sender <- Senders],
            ?assertMatch(?WASMTIME_ERROR(call, destroyed), result(Caller))
        end)
    end).

hammer(Inst) ->
    case wasmtime:send(Inst, <<"message">>) of
        ok -> hammer(Inst);
        ?WASMTIME_ERROR(stream, inbox_full) -> erlang:yield(), hammer(Inst);
        ?WASMTIME_ERROR(call, destroyed) -> destroyed
    end.

%% Senders die in the middle: what a guest receives is whole all the same.
t_senders_die(_) ->
    counted(fun() ->
        Checker = spawn_link(fun() -> check(true) end),
        Inst = inst(mod(channel), with_host(#{inbox_limit => 100_000, stream => Checker})),
        Caller = helper(fun() -> exit(wasmtime:call(Inst, <<"echo">>, [])) end),
        repeated(20, 100, 1000, fun(N) ->
            Message = binary:copy(<<N>>, 100),
            Senders = [helper(fun Send() -> _ = wasmtime:send(Inst, Message), Send() end)
                       || _ <- [1, 2, 3]],
            [kill(Sender) || Sender <- Senders]
        end),
        ok = wasmtime:close(Inst),
        ?assertMatch({ok, [_]}, result(Caller)),
        Checker ! {verdict, self()},
        receive {verdict, AllWhole} -> ?assert(AllWhole) end,
        unlink(Checker),
        exit(Checker, kill),
        ok = wasmtime:destroy(Inst)
    end).

%% Each message is a hundred times the same byte.
check(AllWhole) ->
    receive
        {wasmtime_stream, _, channel, <<Byte, _/binary>> = Bytes} ->
            check(AllWhole andalso Bytes =:= binary:copy(<<Byte>>, 100));
        {verdict, Pid} ->
            Pid ! {verdict, AllWhole}
    end.

%% Everything at once, at random, on the same few instances.
t_everything_at_once(_) ->
    counted(fun() ->
        Insts = [inst(Mod, Opts) || _ <- [1, 2],
                                    {Mod, Opts} <- [{mod(channel), with_host(#{inbox_limit => 1000})},
                                                    {mod(stdio), #{wasi => ?STREAMS}}]],
        Rounds = wasmtime_test:rounds(100, 400, 5000),
        Workers = [helper(fun() ->
            rand:seed(exsss, Seed),
            [act(rand:uniform(8), lists:nth(rand:uniform(length(Insts)), Insts))
             || _ <- lists:seq(1, Rounds)],
            exit(done)
        end) || Seed <- lists:seq(1, 8)],
        [?assertEqual(done, result(Worker)) || Worker <- Workers],
        [ok = wasmtime:destroy(Inst) || Inst <- Insts]
    end).

act(1, Inst) -> bounded(Inst, <<"recv">>, [0, 100]);
act(2, Inst) -> bounded(Inst, <<"prompt">>, []);
act(3, Inst) -> bounded(Inst, <<"count">>, [20]);
act(4, Inst) -> _ = wasmtime:interrupt(Inst);
act(5, Inst) ->
    Caller = helper(fun() -> bounded(Inst, <<"recv">>, [0, 100]) end),
    kill(Caller);
act(_, Inst) -> _ = wasmtime:send(Inst, <<"some bytes">>).

bounded(Inst, Name, Args) ->
    case wasmtime:call(Inst, Name, Args, #{timeout => 2}) of
        {ok, _} -> ok;
        ?WASMTIME_TRAP(timeout) -> ok;
        ?WASMTIME_TRAP(interrupt) -> ok;
        ?WASMTIME_ERROR(call, unknown_export) -> ok
    end.
