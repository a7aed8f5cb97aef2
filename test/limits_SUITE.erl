%% Limits of one instance: both sides of each, and an error that says which.
-module(limits_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [mod/1, mod/2, inst/2]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

-define(PAGE, 65536).

instantiate(Mod, Opts) ->
    case wasmtime_test:instantiate(Mod, Opts) of
        {ok, Inst} -> wasmtime:destroy(Inst);
        Error -> Error
    end.

%% A memory that starts above the limit refuses the instance.
t_memory_at_start(_) ->
    Mod = mod(memory),
    ?assertEqual(ok, instantiate(Mod, #{memory_limit => 2 * ?PAGE})),
    [?assertMatch(?WASMTIME_ERROR(limit, memory_limit), instantiate(Mod, #{memory_limit => Limit}))
     || Limit <- [2 * ?PAGE - 1, ?PAGE, 1, 0]].

%% Growth above the limit fails in the guest, which goes on.
t_memory_growth(_) ->
    Inst = inst(memory, #{memory_limit => 4 * ?PAGE}),
    ?assertEqual({ok, [2]}, wasmtime:call(Inst, <<"grow">>, [2])),
    refused_growth(Inst, 1),
    ?assertEqual({ok, {4, 4 * ?PAGE}}, wasmtime:memory_size(Inst)),
    ok = wasmtime:destroy(Inst).

%% As the specification has it, a growth that is refused gives -1.
refused_growth(Inst, By) ->
    ?assertEqual({ok, [-1]}, wasmtime:call(Inst, <<"grow">>, [By])).

%% The module's own maximum holds too.
t_module_maximum(_) ->
    Inst = inst(memory, #{memory_limit => unlimited}),
    refused_growth(Inst, 999),
    ?assertEqual({ok, [2]}, wasmtime:call(Inst, <<"grow">>, [998])),
    ok = wasmtime:destroy(Inst).

%% Without an option the limit is 256 MiB.
t_default_memory_limit(_) ->
    Mod = mod({wat, "(module (memory (export \"memory\") 1)"
                    " (func (export \"grow\") (param i32) (result i32)"
                    " (memory.grow (local.get 0))))"}, #{}),
    Inst = inst(Mod, #{}),
    refused_growth(Inst, 4096),
    ?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"grow">>, [4095])),
    refused_growth(Inst, 1),
    ok = wasmtime:destroy(Inst).

%% All memories together.
t_total_memory(_) ->
    Mod = mod(memories, #{proposals => #{multi_memory => true}}),
    ?assertEqual(ok, instantiate(Mod, #{total_memory_limit => 3 * ?PAGE})),
    ?assertMatch(?WASMTIME_ERROR(limit, memory_limit),
                 instantiate(Mod, #{total_memory_limit => 3 * ?PAGE - 1})),
    Inst = inst(memory, #{total_memory_limit => 3 * ?PAGE}),
    ?assertEqual({ok, [2]}, wasmtime:call(Inst, <<"grow">>, [1])),
    refused_growth(Inst, 1),
    ok = wasmtime:destroy(Inst).

%% A growth that no memory of its type could have does not give back what another one got.
t_total_memory_beyond_a_type(_) ->
    Inst = inst(mod(small_pages, #{proposals => #{custom_page_sizes => true}}),
                #{total_memory_limit => 10 * ?PAGE}),
    Grown = [begin
                 {ok, [Before]} = wasmtime:call(Inst, <<"grow">>, [1]),
                 ?assertEqual({ok, [-1]}, wasmtime:call(Inst, <<"grow_small">>, [16#ffffffff])),
                 Before
             end || _ <- lists:seq(1, 20)],
    ?assertEqual(lists:seq(1, 8), [Pages || Pages <- Grown, Pages =/= -1]),
    ?assertMatch(#{memory_bytes := 9 * ?PAGE + 1}, wasmtime:info(Inst)),
    ?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"grow_small">>, [?PAGE - 1])),
    ?assertEqual({ok, [-1]}, wasmtime:call(Inst, <<"grow_small">>, [1])),
    ok = wasmtime:destroy(Inst).

%% What refused growth would have taken is not counted: beyond the memory's maximum, or the pool's.
t_total_memory_after_refusals(_) ->
    Refused = fun(Mod, Limit, By) ->
        Inst = inst(Mod, #{total_memory_limit => Limit}),
        [refused_growth(Inst, By) || _ <- lists:seq(1, 10)],
        ?assertMatch(#{memory_bytes := 2 * ?PAGE}, wasmtime:info(Inst)),
        ?assertEqual({ok, [2]}, wasmtime:call(Inst, <<"grow">>, [100])),
        ok = wasmtime:destroy(Inst)
    end,
    Refused(mod(memory), unlimited, 999),
    wasmtime_test:with_pool(memory, #{}, fun(Mod) -> Refused(Mod, 10_000 * ?PAGE, 1023) end).

%% A shared memory counts with its maximum from the start, alone and with others.
t_shared_memories(_) ->
    Mod = mod(shared, #{proposals => #{threads => true}}),
    [begin
         {error, Error} = instantiate(Mod, Opts),
         ?assertMatch({Key, #{class := limit, kind := memory_limit, key := Key}}, {Key, Error})
     end || {Key, Opts} <- [{total_memory_limit, #{total_memory_limit => 12 * ?PAGE - 1}},
                            {total_memory_limit, #{total_memory_limit => 13 * ?PAGE - 1}},
                            {memory_limit, #{memory_limit => 8 * ?PAGE - 1}}]],
    Inst = inst(Mod, #{total_memory_limit => 14 * ?PAGE, memory_limit => 8 * ?PAGE}),
    ?assertMatch(#{memory_bytes := 13 * ?PAGE, memory_peak := 13 * ?PAGE}, wasmtime:info(Inst)),
    ?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"grow">>, [7])),
    refused_growth(Inst, 1),
    ?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"grow_own">>, [1])),
    ?assertEqual({ok, [-1]}, wasmtime:call(Inst, <<"grow_own">>, [1])),
    ?assertMatch(#{memory_bytes := 14 * ?PAGE}, wasmtime:info(Inst)),
    ok = wasmtime:destroy(Inst).

%% So do those of links.
t_shared_memories_of_links(_) ->
    Link = mod(shared, #{proposals => #{threads => true}}),
    Main = mod({wat, "(module (import \"l\" \"memory\" (memory 1 8 shared)) (memory 1 2 shared))"},
               #{proposals => #{threads => true}}),
    Opts = fun(Total) -> #{links => [{"l", Link}], total_memory_limit => Total} end,
    ?assertMatch({error, #{class := limit, kind := memory_limit, key := total_memory_limit}},
                 instantiate(Main, Opts(15 * ?PAGE - 1))),
    Inst = inst(Main, Opts(15 * ?PAGE)),
    ?assertMatch(#{memory_bytes := 15 * ?PAGE}, wasmtime:info(Inst)),
    ok = wasmtime:destroy(Inst).

%% In a pool no memory grows beyond max_memory, which is what counts where the maximum is larger.
t_shared_memories_in_a_pool(_) ->
    Opts = maps:merge(wasmtime_test:pool(#{max_memory => 6 * ?PAGE}), #{proposals => #{threads => true}}),
    Inst = inst(mod(shared, Opts), #{total_memory_limit => 11 * ?PAGE}),
    ?assertMatch(#{memory_bytes := 11 * ?PAGE}, wasmtime:info(Inst)),
    refused_growth(Inst, 6),
    ?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"grow">>, [5])),
    ok = wasmtime:destroy(Inst).

%% A limit that is hit is named, as the option and in words, also where links hit it together.
t_keys(_) ->
    Objects = mod({wat, "(module (type $a (array i64))"
                        " (func (export \"f\") (param i32) (drop (array.new_default $a (local.get 0)))))"}, #{}),
    Allocated = fun(Opts) ->
        Inst = inst(Objects, Opts),
        try wasmtime:call(Inst, <<"f">>, [10_000_000]) after wasmtime:destroy(Inst) end
    end,
    Links = [{"l", mod(tables)}],
    [begin
         {error, Error} = Result,
         ?assertMatch({Key, #{class := limit, kind := Kind, key := Key}}, {Key, Error}),
         ?assertMatch({_, _}, binary:match(map_get(message, Error), atom_to_binary(Key)))
     end || {Kind, Key, Result} <-
                [{memory_limit, memory_limit, instantiate(mod(memory), #{memory_limit => 1})},
                 {memory_limit, memory_limit, Allocated(#{memory_limit => ?PAGE})},
                 {memory_limit, total_memory_limit, instantiate(mod(memory), #{total_memory_limit => 1})},
                 {memory_limit, total_memory_limit, Allocated(#{total_memory_limit => ?PAGE})},
                 {table_limit, max_tables, instantiate(mod(tables), #{max_tables => 0})},
                 {table_limit, max_tables, instantiate(mod(tables), #{max_tables => 3, links => Links})},
                 {table_limit, max_table_elements, instantiate(mod(tables), #{max_table_elements => 9})},
                 {instance_limit, max_instances, instantiate(mod(add), #{max_instances => 0})},
                 {instance_limit, max_instances, instantiate(mod(add), #{max_instances => 1, links => Links})}]],
    ?assertEqual(ok, instantiate(mod(tables), #{max_tables => 4, max_instances => 2, links => Links})).

%% The number of tables, and of their elements at the start and in growth.
t_tables(_) ->
    Mod = mod(tables),
    ?assertEqual(ok, instantiate(Mod, #{max_tables => 2, max_table_elements => 20})),
    [?assertMatch({Opts, ?WASMTIME_ERROR(limit, table_limit)}, {Opts, instantiate(Mod, Opts)})
     || Opts <- [#{max_tables => 1}, #{max_tables => 0}, #{max_table_elements => 9}]],
    Inst = inst(Mod, #{max_table_elements => 20}),
    ?assertEqual({ok, [10]}, wasmtime:call(Inst, <<"grow">>, [10])),
    ?assertEqual({ok, [-1]}, wasmtime:call(Inst, <<"grow">>, [1])),
    ok = wasmtime:destroy(Inst).

t_instances(_) ->
    ?assertEqual(ok, instantiate(mod(add), #{max_instances => 1})),
    ?assertMatch(?WASMTIME_ERROR(limit, instance_limit),
                 instantiate(mod(add), #{max_instances => 0})).

t_unlimited(_) ->
    ?assertEqual(ok, instantiate(mod(memory), #{memory_limit => unlimited,
                                                total_memory_limit => unlimited,
                                                max_tables => unlimited,
                                                max_table_elements => unlimited,
                                                max_instances => unlimited})).

%% A limit is the instance's, not the module's: the next one has its own.
t_each_instance(_) ->
    Mod = mod(memory),
    ?assertMatch(?WASMTIME_ERROR(limit, memory_limit), instantiate(Mod, #{memory_limit => 1})),
    ?assertEqual(ok, instantiate(Mod, #{})).

%% Limits hold in a pool as well.
t_pooled(_) ->
    wasmtime_test:with_pool(memory, #{}, fun(Mod) ->
        ?assertMatch(?WASMTIME_ERROR(limit, memory_limit), instantiate(Mod, #{memory_limit => 1})),
        Inst = inst(Mod, #{memory_limit => 3 * ?PAGE}),
        ?assertEqual({ok, [2]}, wasmtime:call(Inst, <<"grow">>, [1])),
        refused_growth(Inst, 1),
        ok = wasmtime:destroy(Inst)
    end).

%% A memory far beyond what the machine has is refused or out of memory, never a crash.
t_absurd_memory(_) ->
    Mod = mod({wat, "(module (memory i64 0x100000000))"}, #{proposals => #{memory64 => true}}),
    ?assertMatch(?WASMTIME_ERROR(limit, memory_limit), instantiate(Mod, #{})),
    ?assertMatch(?WASMTIME_ERROR(instantiate, out_of_memory),
                 instantiate(Mod, #{memory_limit => unlimited})).

%% Limits that refuse every instance refuse the template, with the same class and kind; those that allow one
%% allow the template.
t_prepared(_) ->
    [begin
         Module = mod(Name),
         Kind = fun({error, #{class := limit, kind := K}}) -> K; (_) -> ok end,
         Expected = Kind(instantiate(Module, Opts)),
         ?assertEqual({Name, Opts, Expected}, {Name, Opts, Kind(wasmtime_test:prepare(Module, Opts))})
     end || {Name, Opts} <- [{memory, #{memory_limit => Limit}} || Limit <- [0, ?PAGE, 2 * ?PAGE - 1, 2 * ?PAGE]]
                ++ [{memories, #{Key => Limit}} || Key <- [memory_limit, total_memory_limit],
                                                   Limit <- [0, ?PAGE, 2 * ?PAGE, 3 * ?PAGE, 4 * ?PAGE, unlimited]]
                ++ [{tables, #{max_tables => Limit}} || Limit <- [0, 1, 2, 3]]
                ++ [{tables, #{max_table_elements => Limit}} || Limit <- [0, 9, 10, 19, 20, 100]]
                ++ [{add, #{max_instances => Limit}} || Limit <- [0, 1]]
                ++ [{memory, #{links => [{"other", mod(memories)}], Key => Limit}}
                    || {Key, Limits} <- [{max_instances, [1, 2]},
                                         {total_memory_limit, [4 * ?PAGE, 5 * ?PAGE - 1, 5 * ?PAGE]}],
                       Limit <- Limits]].
