%% Host functions that have a type: from an Erlang function, or from another instance's export; and WASI
%% commands.
-module(import_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [inst/1, inst/2, one/1]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

%% host.wat with these instead of its imports' plain functions.
host(Typed) ->
    #{imports := Plain} = one(fun(_, [X]) -> {ok, [X]} end),
    inst(host, #{imports => maps:merge(Plain, Typed)}).

refused(Typed) ->
    #{imports := Plain} = one(fun(_, [X]) -> {ok, [X]} end),
    wasmtime_test:instantiate(wasmtime_test:mod(host), #{imports => maps:merge(Plain, Typed)}).

-define(ONE, {<<"env">>, <<"one">>}).
-define(SWAP, {<<"env">>, <<"swap">>}).
-define(NONE, {<<"env">>, <<"none">>}).

%% A typed function takes the arguments and gives the result, or the list of results.
t_typed(_) ->
    Self = self(),
    Inst = host(#{?ONE => wasmtime:import_fun({[i32], i32}, fun([X]) -> X + 1 end),
                  ?SWAP => wasmtime:import_fun({[i32, f64], [f64, i32]}, fun([A, B]) -> [B, A] end),
                  ?NONE => wasmtime:import_fun({[], []}, fun([]) -> Self ! called end)}),
    ?assertEqual({ok, [6]}, wasmtime:call(Inst, <<"one">>, [5])),
    ?assertEqual({ok, [2.5, 1]}, wasmtime:call(Inst, <<"swap">>, [1, 2.5])),
    ?assertEqual({ok, []}, wasmtime:call(Inst, <<"none">>, [])),
    receive called -> ok end,
    ok = wasmtime:destroy(Inst),
    One = host(#{?ONE => wasmtime:import_fun({[i32], [i32]}, fun([X]) -> [X * 2] end)}),
    ?assertEqual({ok, [10]}, wasmtime:call(One, <<"one">>, [5])),
    ok = wasmtime:destroy(One).

%% It is a function like any other, and fails like one.
t_typed_failures(_) ->
    [begin
         Inst = host(#{?ONE => wasmtime:import_fun({[i32], i32}, Fun)}),
         ?assertMatch(?WASMTIME_ERROR(host, host_error), wasmtime:call(Inst, <<"one">>, [5])),
         ?assertEqual({ok, [4]}, wasmtime:call(Inst, <<"double">>, [2])),
         ok = wasmtime:destroy(Inst)
     end || Fun <- [fun(_) -> error(oops) end, fun(_) -> exit(oops) end, fun(_) -> throw(oops) end,
                    fun(_) -> a end, fun(_) -> 1.5 end, fun(_) -> [1] end]],
    Inst = host(#{?SWAP => wasmtime:import_fun({[i32, f64], [f64, i32]}, fun(_) -> no_list end)}),
    ?assertMatch(?WASMTIME_ERROR(host, host_error), wasmtime:call(Inst, <<"swap">>, [1, 1.0])),
    ok = wasmtime:destroy(Inst).

%% A type that is not the import's is refused before anything runs, and the message shows both.
t_other_type(_) ->
    Types = [{[i64], i32}, {[i32], i64}, {[], i32}, {[i32], []}, {[i32, i32], i32}, {[i32], [i32, i32]},
             {[externref], i32}],
    [?assertMatch({Type, ?WASMTIME_ERROR(link, incompatible_import)},
                  {Type, refused(#{?ONE => wasmtime:import_fun(Type, fun(_) -> 1 end)})})
     || Type <- Types],
    {error, #{message := Message}} =
        refused(#{?ONE => wasmtime:import_fun({[i64], f32}, fun(_) -> 1 end)}),
    [?assertMatch({_, _, {_, _}}, {Part, Message, binary:match(Message, Part)})
     || Part <- [<<"env.one">>, <<"(i32) -> (i32)">>, <<"(i64) -> (f32)">>]],
    ?assertMatch(?WASMTIME_ERROR(link, incompatible_import),
                 wasmtime_test:prepare(wasmtime_test:mod(host), #{
                     imports => #{?ONE => wasmtime:import_fun({[], []}, fun(_) -> 1 end)}})),
    %% One that the module does not import does no harm.
    Inst = host(#{{<<"env">>, <<"more">>} => wasmtime:import_fun({[], []}, fun(_) -> 1 end)}),
    ok = wasmtime:destroy(Inst).

%% What is no type is an exception; a function of another arity is named.
t_bad_types(_) ->
    [?assertError(badarg, wasmtime:import_fun(Bad, fun(_) -> 1 end))
     || Bad <- [i32, {[i32]}, {[i32], i32, i32}, {i32, i32}, {[a], i32}, {[i32], a}, {[i32 | i32], i32},
                {[], [i32 | i32]}, {[i8], i32}, make_ref(), <<"f">>]],
    [?assertMatch(?WASMTIME_ERROR(instantiate, badarg), wasmtime:import_fun({[i32], i32}, Bad))
     || Bad <- [f, fun() -> 1 end, fun(_, _) -> {ok, []} end]].

%% Every type that a function may have.
t_all_types(_) ->
    [begin
         Text = ["(module (import \"e\" \"f\" (func (param ", atom_to_list(Type), ") (result ",
                 atom_to_list(Type), "))))"],
         Mod = wasmtime_test:mod({wat, Text}, #{proposals => #{gc => true, function_references => true,
                                                               exceptions => true}}),
         Fun = wasmtime:import_fun({[Type], Type}, fun([V]) -> V end),
         {ok, Inst} = wasmtime_test:instantiate(Mod, #{{"e", "f"} => Fun}),
         ok = wasmtime:destroy(Inst),
         Other = wasmtime:import_fun({[Type, Type], Type}, fun([V, _]) -> V end),
         ?assertMatch({Type, ?WASMTIME_ERROR(link, incompatible_import)},
                      {Type, wasmtime_test:instantiate(Mod, #{{"e", "f"} => Other})})
     end || Type <- [i32, i64, f32, f64, v128, externref, funcref, anyref, eqref, i31ref, structref,
                     arrayref]].

%% An instance's export as another's import.
t_export(_) ->
    Add = inst(memory),
    {ok, Count} = wasmtime:import_fun(Add, "count"),
    Mod = wasmtime_test:mod({wat, "(module (import \"m\" \"next\" (func $n (result i32)))"
                                  " (func (export \"twice\") (result i32) (i32.add (call $n) (call $n))))"}),
    {ok, Inst} = wasmtime_test:instantiate(Mod, #{{"m", "next"} => Count}),
    ?assertEqual({ok, [3]}, wasmtime:call(Inst, <<"twice">>, [])),
    ?assertEqual({ok, [7]}, wasmtime:call(Inst, <<"twice">>, [])),
    ?assertEqual({ok, [5]}, wasmtime:call(Add, <<"count">>, [])),
    %% Its end is the end of the function.
    ok = wasmtime:destroy(Add),
    {error, #{class := host, kind := host_error, message := Message}} =
        wasmtime:call(Inst, <<"twice">>, []),
    ?assertMatch({_, _}, binary:match(Message, <<"call/destroyed">>)),
    ok = wasmtime:destroy(Inst).

%% A guest whose import never returns ends all the same, and so does what runs for it in the other instance,
%% which is fine: at the call's deadline and the host call's, by an interrupt, by destroy, and when the caller
%% dies whom another process serves. Each with any mix of runners.
t_export_ends(_) ->
    Mod = wasmtime_test:mod({wat, "(module (import \"b\" \"spin\" (func $spin)) (func (export \"go\") (call $spin)))"}),
    [begin
         {ok, B} = wasmtime:instantiate(wasmtime_test:mod(spin), #{runner => Runner}),
         {ok, Spin} = wasmtime:import_fun(B, "spin"),
         New = fun(Opts) ->
             {ok, A} = wasmtime_test:instantiate(Mod, Opts#{{"b", "spin"} => Spin}),
             A
         end,
         ended(End, New, B),
         ?assertEqual({End, {ok, [1]}}, {End, wasmtime:call(B, "ok", [], #{timeout => 10_000})}),
         ok = wasmtime:destroy(B)
     end || Runner <- [thread, scheduler],
            End <- [timeout, host_timeout, interrupt, destroy, killed]],
    ?assertEqual([], wasmtime_test:mailbox()).

ended(timeout, New, _) ->
    A = New(#{}),
    ?assertMatch(?WASMTIME_TRAP(timeout), wasmtime:call(A, "go", [], #{timeout => 20})),
    ok = wasmtime:destroy(A);
ended(host_timeout, New, _) ->
    A = New(#{host_timeout => 20}),
    ?assertMatch(?WASMTIME_ERROR(host, host_timeout), wasmtime:call(A, "go", [])),
    ok = wasmtime:destroy(A);
ended(killed, New, B) ->
    Host = spawn_link(fun() -> receive {serve, Inst} -> serve(Inst) end end),
    A = New(#{host => Host}),
    Host ! {serve, A},
    {Pid, Monitor} = wasmtime_test:caller(fun() -> wasmtime:call(A, "go", []) end),
    spins(B),
    exit(Pid, kill),
    receive {'DOWN', Monitor, _, _, killed} -> ok end,
    ok = wasmtime:destroy(A),
    wasmtime_test:wait_until(fun() -> maps:get(state, wasmtime:info(B)) =:= idle end),
    unlink(Host),
    exit(Host, kill);
ended(End, New, B) ->
    A = New(#{}),
    {Pid, Monitor} = wasmtime_test:caller(fun() -> wasmtime:call(A, "go", []) end),
    spins(B),
    ok = wasmtime:End(A),
    receive {Pid, {error, #{kind := Kind}}} ->
        ?assertEqual(case End of destroy -> destroyed; interrupt -> interrupt end, Kind)
    end,
    receive {'DOWN', Monitor, _, _, normal} -> ok end,
    ok = wasmtime:destroy(A).

spins(Inst) -> wasmtime_test:wait_until(fun() -> maps:get(state, wasmtime:info(Inst)) =:= running end).

serve(Inst) ->
    receive {wasmtime_host_call, _, _, _, _} = Message -> ok = wasmtime:handle_host_call(Inst, Message) end,
    serve(Inst).

%% A host function may have such a function called as often as it likes, and is not ended by the ones before.
t_export_within(_) ->
    Add = inst(add),
    {ok, Fun} = wasmtime:import_fun(Add, "add"),
    Sum = fun(Inst, [X]) ->
        {ok, [Y]} = Fun(Inst, [X, 1]),
        Fun(Inst, [Y, 1])
    end,
    Inst = host(#{?ONE => Sum}),
    ?assertEqual({ok, [7]}, wasmtime:call(Inst, <<"one">>, [5])),
    ?assertEqual({ok, [3]}, Fun(none, [1, 2])),
    ok = wasmtime:destroy(Inst),
    ok = wasmtime:destroy(Add).

%% A trap inside comes out as a host error with the trap's kind and message.
t_export_traps(_) ->
    Traps = inst(traps),
    {ok, Fun} = wasmtime:import_fun(Traps, <<"unreachable">>),
    Inst = host(#{?NONE => Fun}),
    {error, #{class := host, kind := host_error, message := Message}} = wasmtime:call(Inst, <<"none">>, []),
    ?assertMatch({_, _}, binary:match(Message, <<"trap/unreachable: ">>)),
    ok = wasmtime:destroy(Inst),
    ok = wasmtime:destroy(Traps).

%% Its type is compared, its name is looked up.
t_export_refused(_) ->
    Add = inst(add),
    {ok, Fun} = wasmtime:import_fun(Add, <<"add">>),
    ?assertMatch(?WASMTIME_ERROR(link, incompatible_import), refused(#{?ONE => Fun})),
    ?assertMatch(?WASMTIME_ERROR(call, unknown_export), wasmtime:import_fun(Add, <<"sub">>)),
    ?assertMatch(?WASMTIME_ERROR(call, badarg), wasmtime:import_fun(Add, add)),
    ?assertMatch(?WASMTIME_ERROR(call, badarg), wasmtime:import_fun(Add, <<0>>)),
    [?assertError(badarg, wasmtime:import_fun(Bad, <<"add">>)) || Bad <- [1, make_ref(), {}, {[a], b}]],
    ok = wasmtime:destroy(Add).

%% A type also counts where the run is for a pre-initialization.
t_preinit(_) ->
    Fun = wasmtime:import_fun({[i64], i32}, fun(_) -> 1 end),
    ?assertMatch(?WASMTIME_ERROR(link, incompatible_import),
                 wasmtime:preinit(wasmtime_test:source(start_host), #{{"env", "one"} => Fun}, [])).

%% A command returns, exits, fails or is no command.
t_run(_) ->
    Command = fun(Body) ->
        inst({wat, ["(module (import \"wasi_snapshot_preview1\" \"proc_exit\" (func $exit (param i32)))"
                    " (memory (export \"memory\") 1) (func (export \"_start\") ", Body, "))"]},
             #{wasi => #{}})
    end,
    Run = fun(Body, Opts) ->
        Inst = Command(Body),
        Result = wasmtime:run(Inst, Opts),
        ok = wasmtime:destroy(Inst),
        Result
    end,
    ?assertEqual(ok, Run("", #{})),
    ?assertEqual(ok, Run("(call $exit (i32.const 0))", #{})),
    ?assertMatch(?WASMTIME_EXIT(3), Run("(call $exit (i32.const 3))", #{})),
    ?assertMatch(?WASMTIME_TRAP(unreachable), Run("(unreachable)", #{})),
    ?assertMatch(?WASMTIME_TRAP(timeout), Run("(loop $l (br $l))", #{timeout => 10})),
    ?assertMatch(?WASMTIME_BADARG(nonsense), Run("", #{nonsense => 1})),
    Inst = Command(""),
    ?assertEqual(ok, wasmtime:run(Inst)),
    ?assertEqual(ok, wasmtime:run(Inst)),
    ok = wasmtime:destroy(Inst),
    ?assertMatch(?WASMTIME_ERROR(call, destroyed), wasmtime:run(Inst)),
    Add = inst(add),
    ?assertMatch(?WASMTIME_ERROR(call, unknown_export), wasmtime:run(Add)),
    ok = wasmtime:destroy(Add),
    [?assertError(badarg, wasmtime:run(Bad)) || Bad <- [1, make_ref()]].
