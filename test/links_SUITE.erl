%% Several modules in one store: what links serve, in which order, and what is refused.
-module(links_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [mod/1, mod/2, inst/2, instantiate/2]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

-define(PAGE, 65536).

%% link_main.wat with its two links, compiled alike.
main(Compile) ->
    Links = [{"base", mod(link_base, Compile)}, {<<"middle">>, mod(link_middle, Compile)}],
    {mod(link_main, Compile), #{links => Links}}.

with_main(Fun) -> with_main(#{}, Fun).

with_main(Compile, Fun) ->
    {Mod, Opts} = main(Compile),
    Inst = inst(Mod, Opts),
    try Fun(Inst) after wasmtime:destroy(Inst) end.

%% A module of text, linked to links of text.
linked(Text, Links) -> linked(Text, Links, #{}).

linked(Text, Links, Opts) -> linked(Text, Links, Opts, #{}).

linked(Text, Links, Opts, Compile) ->
    Made = [{Name, mod({wat, Link}, Compile)} || {Name, Link} <- Links],
    instantiate(mod({wat, Text}, Compile), Opts#{links => Made}).

%% The refusal is of this kind, and its message has all these parts.
refused(Kind, Parts, Result) ->
    {error, #{class := link, kind := K, message := Message}} = Result,
    ?assertEqual({Kind, []}, {K, [P || P <- Parts, binary:match(Message, P) =:= nomatch]}, Message).

%% ---- what links serve -----------------------------------------------------------------------

%% Functions, of a link and of a link that uses another; also called by their re-export.
t_functions(_) ->
    with_main(fun(I) ->
        ?assertEqual({ok, [20]}, wasmtime:call(I, "quad", [5])),
        ?assertEqual({ok, [10]}, wasmtime:call(I, "double", [5]))
    end).

%% References pass from module to module: a term of the host through a link and back.
t_references(_) ->
    {ok, Inst} = linked(
        "(module (import \"l\" \"swap\" (func $s (param externref funcref) (result funcref externref)))"
        " (elem declare func $f) (func $f (result i32) (i32.const 5))"
        " (func (export \"pass\") (param externref) (result externref funcref) (local $f funcref)"
        "  (call $s (local.get 0) (ref.func $f)) (local.set 0) (local.set $f)"
        "  (local.get 0) (local.get $f)))",
        [{"l", "(module (func (export \"swap\") (param externref funcref) (result funcref externref)"
               " (local.get 1) (local.get 0)))"}]),
    {ok, Ref} = wasmtime:externref(Inst, {a, term}),
    {ok, [Back, Fun]} = wasmtime:call(Inst, "pass", [Ref]),
    ?assertEqual({ok, {a, term}}, wasmtime:externref_data(Back)),
    ?assertEqual(#{kind => funcref, params => [], results => [<<"i32">>]}, wasmtime:ref_info(Fun)),
    ok = wasmtime:destroy(Inst).

%% One memory, seen by both sides and by the host through the re-export, growth included.
t_memory(_) ->
    with_main(fun(I) ->
        ?assertEqual({ok, <<"base">>}, wasmtime:read_memory(I, 0, 4)),
        ?assertEqual({ok, <<"from main">>}, wasmtime:read_memory(I, "memory", 16, 9)),
        {ok, []} = wasmtime:call(I, "store", [1, $o]),
        ?assertEqual({ok, <<"bose">>}, wasmtime:read_memory(I, 0, 4)),
        ok = wasmtime:write_memory(I, 2, <<"n">>),
        ?assertEqual({ok, <<"bone">>}, wasmtime:read_memory(I, 0, 4)),
        ?assertEqual({ok, [1]}, wasmtime:call(I, "grow", [9])),
        ?assertEqual({ok, [-1]}, wasmtime:call(I, "grow", [1])),
        ?assertEqual({ok, {10, 10 * ?PAGE}}, wasmtime:memory_size(I)),
        ok = wasmtime:write_memory(I, 10 * ?PAGE - 1, <<7>>)
    end).

%% Each module has its own memory with its own image; a segment may lie where a link's global says.
t_own_images(_) ->
    with_main(fun(I) ->
        ?assertEqual({ok, <<"main", 0>>}, wasmtime:read_memory(I, "own", 0, 5)),
        ?assertEqual({ok, <<"moved">>}, wasmtime:read_memory(I, "own", 100, 5)),
        {ok, []} = wasmtime:call(I, "store_middle", [0, 255]),
        ?assertEqual({ok, <<"main">>}, wasmtime:read_memory(I, "own", 0, 4)),
        ?assertEqual({ok, <<"base">>}, wasmtime:read_memory(I, 0, 4))
    end).

%% A mutable global is one for all; a constant one is read.
t_globals(_) ->
    with_main(fun(I) ->
        ?assertEqual({ok, [8, 8]}, wasmtime:call(I, "bump", [])),
        {ok, []} = wasmtime:call(I, "count", [100]),
        ?assertEqual({ok, [101, 101]}, wasmtime:call(I, "bump", [])),
        ?assertEqual({ok, [42]}, wasmtime:call(I, "limit", [])),
        ?assertEqual({ok, 42}, wasmtime:global_get(I, "limited"))
    end).

%% A table is one for all: the link calls what the main module put into it.
t_tables(_) ->
    with_main(fun(I) ->
        ?assertEqual([{ok, [14]}, {ok, [-7]}, {ok, [14]}],
                     [wasmtime:call(I, "call", [At, 7]) || At <- [0, 1, 2]]),
        ?assertMatch(?WASMTIME_TRAP(indirect_call_to_null), wasmtime:call(I, "call", [3, 7])),
        ?assertMatch(?WASMTIME_TRAP(table_out_of_bounds), wasmtime:call(I, "call", [4, 7])),
        {ok, Negate} = wasmtime:table_get(I, "table", 1),
        ok = wasmtime:table_set(I, "table", 3, Negate),
        ?assertEqual({ok, [-7]}, wasmtime:call(I, "call", [3, 7])),
        ?assertEqual({ok, 4}, wasmtime:table_size(I, "table"))
    end).

%% An exception that a link throws is caught by its tag.
t_tags(_) ->
    {ok, Inst} = linked(
        "(module (import \"l\" \"tag\" (tag $e (param i32))) (import \"l\" \"throw\" (func $t))"
        " (func (export \"catch\") (result i32)"
        "  (block $h (result i32) (try_table (catch $e $h) (call $t)) (i32.const 0))))",
        [{"l", "(module (tag $e (export \"tag\") (param i32))"
               " (func (export \"throw\") (throw $e (i32.const 33))))"}],
        #{}, #{proposals => #{exceptions => true}}),
    ?assertEqual({ok, [33]}, wasmtime:call(Inst, "catch", [])),
    ok = wasmtime:destroy(Inst).

%% 64-bit memories and tables, custom pages and shared memories are shared like others.
t_other_memories(_) ->
    [begin
         Wide = case Type of "i64" ++ _ -> "i64"; _ -> "i32" end,
         {ok, Inst} = linked(
             ["(module (import \"l\" \"m\" (memory ", Type, ")) (func (export \"get\") (result i32)"
              " (i32.load8_u (", Wide, ".const 1))))"],
             [{"l", ["(module (memory (export \"m\") ", Type, ")", Data, ")"]}],
             #{memory_limit => unlimited},
             #{proposals => #{custom_page_sizes => true, threads => true}}),
         ?assertEqual({Type, {ok, [Value]}}, {Type, wasmtime:call(Inst, "get", [])}),
         ok = wasmtime:destroy(Inst)
     end || {Type, Data, Value} <- [{"i64 1 3", "(data (i64.const 0) \"ab\")", $b},
                                    {"100 200 (pagesize 1)", "(data (i32.const 0) \"ab\")", $b},
                                    {"1 2 shared", "(data (i32.const 0) \"ab\")", $b},
                                    {"1", "", 0}]],
    {ok, Inst} = linked("(module (import \"l\" \"t\" (table i64 1 externref))"
                        " (func (export \"size\") (result i64) (table.size 0)))",
                        [{"l", "(module (table (export \"t\") i64 5 externref))"}]),
    ?assertEqual({ok, [5]}, wasmtime:call(Inst, "size", [])),
    ok = wasmtime:destroy(Inst).

%% A link serves before `imports', and `imports' what the link does not have.
t_before_imports(_) ->
    Main = "(module (import \"env\" \"a\" (func $a (result i32))) (import \"env\" \"b\" (func $b (result i32)))"
           " (func (export \"ab\") (result i32 i32) (call $a) (call $b)))",
    Link = "(module (func (export \"a\") (result i32) (i32.const 1)))",
    Host = fun(_, []) -> {ok, [2]} end,
    {ok, Inst} = linked(Main, [{"env", Link}], #{{"env", "a"} => Host, {"env", "b"} => Host}),
    ?assertEqual({ok, [1, 2]}, wasmtime:call(Inst, "ab", [])),
    ok = wasmtime:destroy(Inst),
    refused(unknown_import, [<<"the module">>, <<"env.b">>, <<"the link \"env\"">>],
            linked(Main, [{"env", Link}], #{})).

%% One module under two names is two instances.
t_twice(_) ->
    Main = "(module (import \"a\" \"load\" (func $a (param i32) (result i32)))"
           " (import \"b\" \"load\" (func $b (param i32) (result i32)))"
           " (import \"a\" \"store\" (func $s (param i32 i32)))"
           " (func (export \"f\") (result i32 i32) (call $s (i32.const 0) (i32.const 1))"
           "  (call $a (i32.const 0)) (call $b (i32.const 0))))",
    Middle = mod(link_middle),
    Inst = inst(mod({wat, Main}), #{links => [{"base", mod(link_base)}, {"a", Middle}, {"b", Middle}]}),
    ?assertEqual({ok, [1, $m]}, wasmtime:call(Inst, "f", [])),
    ok = wasmtime:destroy(Inst).

%% What links export is for modules: by name, the instance has its own exports only.
t_not_callable(_) ->
    with_main(fun(I) ->
        [?assertMatch(?WASMTIME_ERROR(call, unknown_export), wasmtime:call(I, Name, [0]))
         || Name <- ["load", "base.double", "base"]]
    end).

%% Two instances share nothing.
t_isolated(_) ->
    {Mod, Opts} = main(#{}),
    [A, B] = [inst(Mod, Opts) || _ <- [1, 2]],
    {ok, [8, 8]} = wasmtime:call(A, "bump", []),
    {ok, []} = wasmtime:call(A, "store", [0, 0]),
    ?assertEqual({ok, [8, 8]}, wasmtime:call(B, "bump", [])),
    ?assertEqual({ok, <<"base">>}, wasmtime:read_memory(B, 0, 4)),
    [ok = wasmtime:destroy(I) || I <- [A, B]].

%% ---- host and WASI --------------------------------------------------------------------------

wasi_main() ->
    mod({wat, "(module (import \"w\" \"hello\" (func $h (result i32)))"
              " (import \"w\" \"one\" (func $o (param i32) (result i32)))"
              " (import \"w\" \"exit\" (func $e (param i32))) (memory (export \"memory\") 1)"
              " (export \"hello\" (func $h)) (export \"one\" (func $o))"
              " (func (export \"exit\") (param i32) (call $e (local.get 0)))"
              " (func (export \"three\") (result i32) (i32.const 3)))"}).

%% A link has the WASI and the host functions of the same options; WASI sees the link's own memory.
t_wasi_and_host(_) ->
    Opts = #{links => [{"w", mod(link_wasi)}], wasi => #{stdout => capture},
             {"env", "one"} => fun(_, [X]) -> {ok, [X + 1]} end},
    Inst = inst(wasi_main(), Opts),
    ?assertEqual({ok, [0]}, wasmtime:call(Inst, "hello", [])),
    ?assertEqual({ok, {<<"hello">>, <<>>, {0, 0}}}, wasmtime:read_output(Inst)),
    ?assertEqual({ok, [6]}, wasmtime:call(Inst, "one", [5])),
    ?assertMatch(?WASMTIME_EXIT(3), wasmtime:call(Inst, "exit", [3])),
    ok = wasmtime:destroy(Inst),
    refused(unknown_import, [<<"the link \"w\"">>, <<"env.one">>],
            instantiate(wasi_main(), maps:remove({"env", "one"}, Opts))),
    refused(unknown_import, [<<"the link \"w\"">>, <<"wasi_snapshot_preview1.fd_write">>],
            instantiate(wasi_main(), maps:remove(wasi, Opts))).

%% The built-in imports serve links, and whoever has them from a link that exports them again.
t_messages(_) ->
    Main = mod({wat, "(module (import \"c\" \"send\" (func $send (param i32 i32)))"
                     " (import \"again\" \"send\" (func $again (param i32 i32)))"
                     " (memory (export \"memory\") 1) (data (i32.const 8) \"of main\")"
                     " (export \"send\" (func $send))"
                     " (func (export \"again\") (call $again (i32.const 8) (i32.const 7))))"}),
    Again = mod({wat, "(module (import \"erlang\" \"send\" (func $s (param i32 i32))) (memory (export \"m\") 1)"
                      " (export \"send\" (func $s)))"}),
    Inst = inst(Main, #{links => [{"c", mod(channel)}, {"again", Again}], {"env", "host"} => fun(_, []) -> {ok, []} end}),
    Ref = wasmtime:ref(Inst),
    {ok, []} = wasmtime:call(Inst, "send", [100, 3]),
    ?assertEqual(<<0, 0, 0>>, receive {wasmtime_stream, Ref, channel, First} -> First end),
    {ok, []} = wasmtime:call(Inst, "again", []),
    ?assertEqual(<<"of main">>, receive {wasmtime_stream, Ref, channel, Second} -> Second end),
    ok = wasmtime:destroy(Inst).

%% Who calls WASI must export the memory that it works on, also when that is a link's.
t_wasi_without_memory(_) ->
    Text = fun(Export) ->
        {wat, ["(module (import \"w\" \"memory\" (memory 1))"
               " (import \"wasi_snapshot_preview1\" \"fd_write\" (func $w (param i32 i32 i32 i32) (result i32)))"
               " (import \"wasi_snapshot_preview1\" \"random_get\" (func $r (param i32 i32) (result i32)))"
               " (func (export \"write\") (result i32) (call $w (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 0)))"
               " (func (export \"random\") (result i32) (call $r (i32.const 0) (i32.const 1)))", Export, ")"]}
    end,
    Link = mod({wat, "(module (memory (export \"memory\") 1))"}),
    New = fun(Export) -> inst(mod(Text(Export)), #{links => [{"w", Link}], wasi => #{}}) end,
    [With, Without] = [New("(export \"memory\" (memory 0))"), New("")],
    [begin
         ?assertEqual({ok, [0]}, wasmtime:call(With, Name, [])),
         ?assertMatch(?WASMTIME_ERROR(memory, unknown_export), wasmtime:call(Without, Name, []))
     end || Name <- ["write", "random"]],
    [ok = wasmtime:destroy(I) || I <- [With, Without]].

%% A host function that a link calls may call the instance it runs on.
t_nested(_) ->
    One = fun(I, [X]) ->
        {ok, [Three]} = wasmtime:call(I, "three", []),
        ok = wasmtime:write_memory(I, 0, <<X>>),
        {ok, [X + Three]}
    end,
    Inst = inst(wasi_main(), #{links => [{"w", mod(link_wasi)}], wasi => #{}, {"env", "one"} => One}),
    ?assertEqual({ok, [8]}, wasmtime:call(Inst, "one", [5])),
    ?assertEqual({ok, <<5>>}, wasmtime:read_memory(Inst, 0, 1)),
    ok = wasmtime:destroy(Inst).

%% ---- traps ----------------------------------------------------------------------------------

%% The trace of a trap tells the modules that it went through; the instance goes on.
t_trace(_) ->
    with_main(fun(I) ->
        {error, #{class := trap, kind := unreachable, trace := Trace}} = wasmtime:call(I, "fail", []),
        ?assertMatch([#{module_name := <<"base">>, func_name := <<"fails">>},
                      #{module_name := <<"main">>, func_name := <<"deep">>}], Trace),
        ?assertEqual({ok, [20]}, wasmtime:call(I, "quad", [5]))
    end).

%% A deadline ends the code of a link.
t_timeout(_) ->
    with_main(fun(I) ->
        ?assertMatch(?WASMTIME_TRAP(timeout), wasmtime:call(I, "spin", [], #{timeout => 20})),
        ?assertEqual({ok, [20]}, wasmtime:call(I, "quad", [5]))
    end).

%% Fuel is that of the call, wherever it is burnt.
t_fuel(_) ->
    with_main(#{fuel => true}, fun(I) ->
        ?assertMatch(?WASMTIME_TRAP(out_of_fuel), wasmtime:call(I, "spin", [], #{fuel => 10_000})),
        ?assertEqual({ok, [20]}, wasmtime:call(I, "quad", [5], #{fuel => 10_000}))
    end).

%% ---- refused --------------------------------------------------------------------------------

%% A missing export names both sides, whatever it is.
t_missing(_) ->
    [refused(unknown_import, [Who, <<"l.x">>, <<"the link \"l\"">>], Result)
     || Import <- ["func", "memory 1", "table 1 funcref", "global i32", "tag"],
        Text <- [["(module (import \"l\" \"x\" (", Import, ")))"]],
        {Who, Result} <- [{<<"the module">>, linked(Text, [{"l", "(module)"}])},
                          {<<"the link \"m\"">>, linked("(module)", [{"l", "(module)"}, {"m", Text}])}]].

%% So does one of another type: what is wanted, and what is there.
t_mistyped(_) ->
    Wrong = [{"(func (param i32))", "(func (export \"x\") (param i64))"},
             {"(func)", "(memory (export \"x\") 1)"},
             {"(memory 2)", "(memory (export \"x\") 1)"},
             {"(memory 1 2)", "(memory (export \"x\") 1)"},
             {"(memory 1 2)", "(memory (export \"x\") 1 3)"},
             {"(memory i64 1)", "(memory (export \"x\") 1)"},
             {"(table 2 funcref)", "(table (export \"x\") 1 funcref)"},
             {"(table 1 externref)", "(table (export \"x\") 1 funcref)"},
             {"(table i64 1 funcref)", "(table (export \"x\") 1 funcref)"},
             {"(global i32)", "(global (export \"x\") i64 (i64.const 1))"},
             {"(global (mut i32))", "(global (export \"x\") i32 (i32.const 1))"},
             {"(global i32)", "(global (export \"x\") (mut i32) (i32.const 1))"},
             {"(global (mut funcref))", "(global (export \"x\") (mut externref) (ref.null extern))"},
             {"(tag (param i32))", "(tag (export \"x\"))"}],
    Right = [{"(memory 1)", "(memory (export \"x\") 2 3)"}, {"(memory 1 4)", "(memory (export \"x\") 2 3)"},
             {"(table 1 funcref)", "(table (export \"x\") 2 3 funcref)"},
             {"(global funcref)", "(global (export \"x\") (ref func) (ref.func $f)) (func $f)"}],
    Try = fun({Import, Export}) ->
        linked(["(module (import \"l\" \"x\" ", Import, "))"], [{"l", ["(module ", Export, ")"]}])
    end,
    [refused(incompatible_import, [<<"the module">>, <<"l.x">>, <<"the link \"l\"">>], Try(W)) || W <- Wrong],
    [begin {ok, Inst} = Try(R), ok = wasmtime:destroy(Inst) end || R <- Right].

%% A link serves those after it: neither itself nor those before.
t_cycle(_) ->
    Import = fun(From) -> ["(module (import \"", From, "\" \"f\" (func)) (func (export \"f\")))"] end,
    refused(cycle, [<<"the link \"a\"">>, <<"a.f">>, <<"itself">>],
            linked("(module)", [{"a", Import("a")}])),
    refused(cycle, [<<"the link \"a\"">>, <<"b.f">>, <<"the link \"b\"">>],
            linked("(module)", [{"a", Import("b")}, {"b", "(module (func (export \"f\")))"}])),
    refused(cycle, [<<"the link \"a\"">>, <<"b.f">>],
            linked("(module)", [{"a", Import("b")}, {"b", Import("a")}])),
    {ok, Inst} = linked(Import("b"), [{"a", "(module (func (export \"f\")))"}, {"b", Import("a")}]),
    ok = wasmtime:destroy(Inst).

%% Without a link of that name memories, tables and globals stay what nobody can give.
t_unsupported(_) ->
    [refused(unsupported_import, [], instantiate(mod(Name), #{links => [{"other", mod(link_base)}]}))
     || Name <- [import_memory, import_table, import_global]],
    refused(unknown_import, [<<"env.one">>], instantiate(mod(host), #{links => [{"other", mod(link_base)}]})).

%% Names, modules and engines that do not go together.
t_badarg(_) ->
    Base = mod(link_base),
    Bad = [[{"a", Base}, {<<"a">>, Base}], [{"a", mod(link_base, #{fuel => true})}],
           [{"a", mod(link_base, #{opt_level => none})}], [{"a", mod(link_base, wasmtime_test:pool(#{}))}],
           [{a, Base}], [{"a", link_base}], [Base], {"a", Base}, [{"a", Base} | tail]],
    [?assertMatch({error, #{class := instantiate, kind := badarg, key := links, message := <<_, _/binary>>}},
                  Make(mod(add), #{links => Links}))
     || Links <- Bad, Make <- [fun wasmtime:instantiate/2, fun wasmtime:prepare/2]].

%% Waiting on a shared memory of another module would hold the thread as waiting on an own one does.
t_waits(_) ->
    Text = fun(Op) -> {wat, ["(module (import \"l\" \"m\" (memory 1 1 shared)) (func (drop ", Op, ")))"]} end,
    Threads = #{proposals => #{threads => true}},
    ?assertMatch(?WASMTIME_ERROR(compile, unsupported),
                 wasmtime:compile(Text("(memory.atomic.wait32 (i32.const 0) (i32.const 0) (i64.const -1))"), Threads)),
    ?assertMatch({ok, _}, wasmtime:compile(Text("(memory.atomic.notify (i32.const 0) (i32.const 0))"), Threads)).

%% A snapshot could not carry what the links hold.
t_preinit(_) ->
    ?assertMatch({error, #{class := preinit, kind := unsupported, key := links}},
                 wasmtime_test:preinit(wasmtime_test:source(preinit), #{links => [{"l", mod(add)}]}, [])),
    ?assertMatch({ok, _}, wasmtime_test:preinit(wasmtime_test:source(preinit), #{links => []}, [])).
